"""What benchmarks/steering.py measured, and the tables of benchmarks/steering.md and of
tasks/extensions/reviews/README.md that are made of it (benchmarks/claims.py).
"""

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import result_files
from benchmarks import tables as page_tables
from tasks.common import estimates
from tasks.common.estimates import Estimate

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/steering.json"
METHODS: dict[str, tuple[str, dict[str, Any]]] = {  # name -> the stage, and what differs from the preset
    "REINFORCE": ("reinforce", {}),
    "A2C": ("reinforce", {"baseline": "critic"}),
    "PPO": ("ppo", {}),
    "GRPO": ("grpo", {}),
}
WITH = "KL in the reward"
WITHOUT = "no KL"
CELLS = {
    f"{method}, {WITH if with_kl else WITHOUT}": (method, with_kl) for with_kl in (True, False) for method in METHODS
}
COLUMNS = {
    "positive/first": ("positive, by the reward", 100, "{:.1f} %"),
    "positive/second": ("positive, by the second", 100, "{:.1f} %"),
    "gap": ("gap, points", 100, "{:+.1f}"),
    "kl": ("KL, nats", 1, "{:.2f}"),
    "perplexity": ("perplexity under SFT", 1, "{:.2f}"),
    "distinct_2": ("distinct pairs", 100, "{:.1f} %"),
    "commonest": ("commonest sentence", 100, "{:.1f} %"),
    "tokens": ("tokens", 1, "{:.1f}"),
}
LONGEST = 60  # characters shown of a sentence
Results = dict[str, dict[str, Any]]


def load_steering_results() -> Results:
    """All that is measured."""
    found: Results = result_files.load_result(RESULTS, {})
    return found


def save_steering_cell(name: str, seed: int, found: dict[str, Any], single: Mapping[str, Any] | None = None) -> None:
    """Add a cell, with the sums of each opening; seeds that run side by side take turns."""
    folder = os.open(RESULTS.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        results = load_steering_results()
        results.setdefault(name, {})[str(seed)] = found
        result_files.write_result(RESULTS, results, {f"{name} / {seed}": single} if single else None, adds=True)
    finally:
        os.close(folder)


def estimate_mean_over_seeds(values: list[float]) -> Estimate:
    """The mean over seeds with Student's 95 % interval; a single seed has none."""
    return estimates.estimate_mean_over_seeds(values) if len(values) > 1 else Estimate(values[0], values[0], values[0])


def summary(results: Mapping[str, Mapping[str, Any]], *columns: str) -> str:
    """A row for each policy: means over seeds with their intervals, of all columns or of these."""
    heads = [head for head, _, _ in COLUMNS.values()]
    rows = [["policy", "seeds", *heads]]
    for name, cells in ((name, results.get(name, {})) for name in ("SFT", *CELLS)):
        if cells:
            means = [estimate_mean_over_seeds([cell[key][0] for cell in cells.values()]) for key in COLUMNS]
            shown = [format_interval(mean, key) for mean, key in zip(means, COLUMNS, strict=True)]
            rows.append([name, str(len(cells)), *shown])
    return page_tables.render_markdown_table(page_tables.select_columns(rows, columns or ("seeds", *heads)))


def render(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown: means over seeds with their intervals, then every cell."""
    names = ["SFT", *CELLS]
    heads = [head for head, _, _ in COLUMNS.values()]
    lines = [
        "# Positive-review steering",
        "",
        "Made by `python -m benchmarks.steering`: preset `reviews`, with the KL in the reward as there and "
        f"without, {PLAIN}",
        "",
        "## Over seeds",
        "",
        "Means over seeds with Student's 95 % intervals.",
        "",
        summary(results).removesuffix("\n"),
    ]
    lines += ["", "## Every seed", "", "Means over openings with 95 % intervals.", ""]
    lines += [
        f"| policy | seed | {' | '.join(heads)} | which sentence | CPU |",
        "|---|---|" + "---|" * (len(heads) + 2),
    ]
    for name in names:
        for seed, cell in sorted(results.get(name, {}).items()):
            shown = [format_interval(Estimate(*cell[key]), key) for key in COLUMNS]
            seconds = f"{cell['cpu_seconds']:.0f}" if "cpu_seconds" in cell else ""
            lines.append(
                f"| {name} | {seed} | {' | '.join(shown)} | {cell.get('commonest_sentence', '')[:LONGEST]} | "
                f"{seconds} |"
            )
    lines += ["", "## The classifiers", "", "| seed | in the reward | second |", "|---|---|---|"]
    for seed, cell in sorted(results.get("classifiers", {}).items()):
        shown = [format_interval(Estimate(*cell[name]), "positive/first") for name in ("first", "second")]
        lines.append(f"| {seed} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


PLAIN = (
    "four samples at temperature 1 of each of 300 openings. The gap is the share of positive continuations by the "
    "classifier in the "
    "reward minus that by the second. Distinct pairs are those of an opening's samples. CPU: seconds of one core "
    "for the training."
)


def format_interval(value: Estimate, key: str) -> str:
    """A mean with its bounds, in the column's unit."""
    _, scale, form = COLUMNS[key]
    low, high = (form.format(round(scale * one, 2) + 0.0).removesuffix(" %") for one in (value.low, value.high))
    return f"{form.format(round(scale * value.mean, 2) + 0.0)} [{low}, {high}]"
