"""The tables of benchmarks/rl.md, and the text above them."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks import tables as page_tables
from benchmarks.engine import describe_machine
from benchmarks.rl_cases import OURS, THEIRS, THREADS, Case, Device, Size
from tasks.algorithms.common import matmul_backend


@dataclass
class Times:
    """The times of one side for one case, one entry for each step after the warm-up."""

    steps: list[float] = field(default_factory=list)
    sampling: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    loaded: float = 0.0  # MB before the first step
    peak: float = 0.0  # MB at the end

    @property
    def rates(self) -> list[float]:
        """Sampled tokens a second."""
        return [count / seconds for count, seconds in zip(self.tokens, self.sampling, strict=True)]


def format_median_and_range(values: list[float], digits: int) -> str:
    """Median and range."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def format_case_name(case: Case) -> str:
    """The case in words."""
    return f"prompt {case.prompt}, {'natural lengths' if case.natural else f'{case.size.response} tokens each'}"


def format_mean_tokens(times: Times) -> str:
    """The mean number of tokens sampled in a step."""
    return f"{statistics.mean(times.tokens):.0f}"


def format_comparison_row(
    label: str, ours: list[float], theirs: list[float], digits: int, larger_is_better: bool
) -> str:
    """A line of a table: both sides, and the factor by which ours is faster."""
    factor = statistics.median(ours) / statistics.median(theirs)
    return (
        f"| {label} | {format_median_and_range(ours, digits)} | {format_median_and_range(theirs, digits)} | "
        f"{factor if larger_is_better else 1 / factor:.2f} |"
    )


def render_all_tables(results: list[tuple[Case, dict[str, Times]]]) -> list[str]:
    """All tables, as lines."""
    head = [f"| | {OURS} | {THEIRS} | times as fast |", "|---|---|---|---|"]
    grpo = [(case, times[OURS], times[THEIRS]) for case, times in results if case.algorithm == "grpo"]
    dpo = [(case, times[OURS], times[THEIRS]) for case, times in results if case.algorithm == "dpo"]
    memory = [
        f"| {case.algorithm.upper()}, {format_case_name(case)} | {times[OURS].peak:.0f} ({times[OURS].loaded:.0f}) "
        f"| {times[THEIRS].peak:.0f} ({times[THEIRS].loaded:.0f}) |"
        for case, times in results
    ]
    return [
        "## Rollouts, tokens a second (and the mean number of tokens of a step on each side)",
        "",
        *head,
        *(
            format_comparison_row(
                f"{format_case_name(case)}: {format_mean_tokens(ours)} and {format_mean_tokens(theirs)} tokens",
                ours.rates,
                theirs.rates,
                0,
                True,
            )
            for case, ours, theirs in grpo
        ),
        "",
        "## A GRPO step, seconds",
        "",
        *head,
        *(
            format_comparison_row(format_case_name(case), ours.steps, theirs.steps, 2, False)
            for case, ours, theirs in grpo
        ),
        "",
        "## A DPO step, seconds",
        "",
        *head,
        *(
            format_comparison_row(format_case_name(case), ours.steps, theirs.steps, 2, False)
            for case, ours, theirs in dpo
        ),
        "",
        "## Peak memory, MB (in brackets: before the first step)",
        "",
        f"| | {OURS} | {THEIRS} |",
        "|---|---|---|",
        *memory,
    ]


def render_variant_table(found: dict[str, Times]) -> list[str]:
    """A comparison of TRL's own settings, as lines."""
    rows = (
        f"| {label} | {format_median_and_range(times.rates, 0)} | {format_median_and_range(times.steps, 2)} |"
        for label, times in found.items()
    )
    title = "## TRL's settings: GRPO with half of the prompts, the shorter ones, fixed length"
    return ["", title, "", "| | rollouts, tokens a second | step, seconds |", "|---|---|---|", *rows]


def count_million_parameters(size: Size) -> float:
    """The model's weights, in millions."""
    shape = size.shape
    width = shape["hidden_size"]
    heads = shape["num_attention_heads"]
    pairs = shape["num_key_value_heads"]
    attention = width * width * 2 + 2 * width * width * pairs // heads
    layer = attention + 3 * width * shape["intermediate_size"]
    return (shape["vocab_size"] * width + shape["num_hidden_layers"] * layer) / 1e6


NO_GPU = (
    "`--device cuda` does the same in bf16 with a model of Qwen2.5-0.5B's shape. It has not been run: no GPU "
    "was at hand."
)


def render_rl_introduction(size: Size, device: Device, rounds: int, load: float, seconds: float) -> list[str]:
    """What was measured, on which machine, and how."""
    kind = (
        f"{size.architecture} of {count_million_parameters(size):.1f} million random weights, "
        f"{'bf16' if device == 'cuda' else 'fp32'}"
    )
    memory = "the device's, as torch counts it" if device == "cuda" else "resident, of a process that does nothing else"
    return [
        "# Rollouts, GRPO and DPO against TRL",
        "",
        f"Made by `python -m benchmarks.rl{' --device cuda' if device == 'cuda' else ''}` in {seconds / 60:.0f} "
        "minutes on "
        f"{describe_machine('torch', 'transformers', 'trl')}; {device}, {THREADS} threads. Large products of "
        f"ours by {matmul_backend.get_or_measure_matmul_library()} (tasks/algorithms/common/matmul_backend.py). Load "
        "of the "
        "machine when it "
        f"began: {load:.1f}.",
        "",
        f"A {kind}. A GRPO step: {size.prompts} prompts, {size.samples} responses to each, sampled at temperature "
        "1, judged by "
        f"a cheap function of the tokens, dapo's aggregation, no KL term, one update. A DPO step: {size.pairs} "
        "pairs, each with "
        "a prompt of its own, log-probabilities of the reference known beforehand. Prompts are all "
        "of the length given; "
        f"responses have {size.response} tokens each, or at most so many and end by themselves with probability "
        f"1/{1 / size.stop:.0f} a "
        "token. Same weights, prompts, rewards, AdamW, clipping and micro-batch "
        f"({size.micro_batch}) on both sides; no "
        "recomputation of activations. No group lacks spread here, so that no pass is saved by skipping one.",
        "",
        "TRL runs as its users run it, by `GRPOTrainer.train` and `DPOTrainer.train`, with sdpa and a static "
        "cache; its time of "
        "sampling is that of its call of `generate`, ours all of `sample`. A step ends before logging and saving. "
        "Before anything "
        "was measured, loss and the gradient of every weight were equal on both sides for one batch of each algorithm "
        "(benchmarks/rl_agreement.py).",
        "",
        f"Medians of {rounds} steps (range in brackets) after one that did not count, the sides turn about, each in a "
        f"process of its own. Peak memory is {memory}.",
        *([] if device == "cuda" else ["", NO_GPU]),
        "",
    ]


def fastest(result: Mapping[str, Any], *headings: str) -> str:
    """A row for each of these tables of the page: the least and the greatest factor by which ours is faster than
    TRL.
    """
    rows = [["", "times as fast as TRL"]]
    for heading in headings:
        factors = _parse_speedups(result, heading)
        rows.append([heading, f"{min(factors):.1f} to {max(factors):.1f}"])
    return page_tables.render_markdown_table(rows)


def least(result: Mapping[str, Any]) -> str:
    """A sentence: how fast a GRPO step is at least, against TRL's."""
    factor = min(_parse_speedups(result, "A GRPO step, seconds"))
    return f"On a CPU a GRPO step is at least {factor:.1f} times as fast as TRL's with a model of 10 million weights.\n"


def _parse_speedups(result: Mapping[str, Any], heading: str) -> list[float]:
    columns, *rows = page_tables.parse_tables(page_tables.page(result))[heading]
    return [float(row[columns.index("times as fast")]) for row in rows]
