"""Three rows of the user's files as they will be learned, what is kept of them for a reward alone, and what their
number can show.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tasks.common import tables
from tasks.common.tables import Record
from tasks.common.terminal import format_in_one_line
from tasks.language import corpus, demonstrations, mixture, problems
from tasks.language.data import forms, imported_pairs, problem_forms, test_sets
from tasks.language.data.rows import read_file, read_files
from tasks.preflight.estimates import format_memory_size

ROWS = 3
LONGEST = 240  # characters of a row
HALF_WIDTH = 98.0  # points over the root of n: half of a share's 95 % interval, at worst
TRAINED = ("sft", "reward_model", "dpo", "grpo")


class Preview(NamedTuple):
    """Rows to learn from as text, how many of them and of held-out ones there are, and the columns that are kept."""

    shown: list[str]
    learned: int
    held_out: int
    kept_columns: Counter[str]


def iterate_preview_lines(kinds: Sequence[str], configs: Mapping[str, Any]) -> Iterator[str]:
    """Lines on the files of these kinds; what is learned stands in [[..]]."""
    for kind in kinds:
        if kind in PREVIEWS:
            preview = PREVIEWS[kind](configs)
            for number, text in enumerate(preview.shown, 1):
                line = format_in_one_line(text)
                yield f"{kind}, row {number}: {line if len(line) <= LONGEST else line[: LONGEST - 3] + '...'}"
            if preview.kept_columns:
                names = ", ".join(f"{name} ({count:,} rows)" for name, count in preview.kept_columns.items())
                yield f"{kind}: not learned; only a reward may read: {format_in_one_line(names)}"
            yield f"{kind}: {describe_size(preview.learned, preview.held_out)}"


def describe_size(learned: int, held_out: int) -> str:
    """What so many rows can show: a share of n held-out rows is known to within 98 / sqrt(n) points, at worst."""
    rows = f"{learned + held_out:,} rows"
    if not held_out:
        return f"{rows}, none of them held out: the run works, and says nothing of how well it does on new rows"
    points = min(HALF_WIDTH / held_out**0.5, 100.0)
    of_rows = f"{held_out:,} held-out row{'s' * (held_out != 1)}"
    interval = f"a share measured on {of_rows} has a 95 % interval of up to ±{points:.0f} points"
    if points > 20:
        return f"{rows}: enough to see that everything runs, too few to compare policies; {interval}"
    if points > 7:
        return f"{rows}: only large differences between policies can be seen; {interval}"
    return f"{rows}: enough to compare policies; {interval}"


def iterate_memory_lines(configs: Mapping[str, Any], stages: Sequence[str]) -> Iterator[str]:
    """The most memory that a stage takes with rows as long as the model's context, before a tokenizer is made."""
    from tasks.memory import sources, terms
    from tasks.memory.workloads import MemoryOptions, build_workload

    shape = sources.resolve_starting_model_shape(configs)
    peaks = {}
    for stage in stages:
        if stage in TRAINED:
            options = MemoryOptions(sequence=configs["pretrained"].context)
            workload = build_workload(stage, shape, configs, options)
            peaks[stage], _ = terms.compute_peak_memory(terms.list_memory_terms(workload))
    if peaks:
        largest = max(peaks, key=lambda stage: peaks[stage])
        context = configs["pretrained"].context
        yield f"memory: at most about {format_memory_size(peaks[largest])} ({largest}, with rows of {context} tokens)"


def _preview_chats(configs: Mapping[str, Any]) -> Preview:
    config = configs["demonstrations"]
    rows, _ = demonstrations.read_or_fetch_demonstrations(config, Path(config.path))
    train, held_out = demonstrations.split_demonstrations(config, rows, config.path)
    shown = [_format_turns(row["messages"]) or f"[[{row['text']}]]" for row in train[:ROWS]]
    return Preview(shown, len(train), len(held_out), Counter())


def _preview_pairs(configs: Mapping[str, Any]) -> Preview:
    config = configs["preferences"]
    pairs = imported_pairs.parse_and_split_pairs(
        read_files(Path(config.path)), config.test_share, config.seed, config.path
    )
    shown = [
        f"{_format_turns(row.get('history') or '')} user: {row['prompt']} chosen: [[{row['chosen']}]] rejected: "
        f"[[{row['rejected']}]]".strip()
        for row in pairs.train[:ROWS]
    ]
    return Preview(shown, len(pairs.train), len(pairs.test), Counter())


def _preview_prompts(configs: Mapping[str, Any]) -> Preview:
    config = configs["mixture"]
    files = [dataset for dataset in config.datasets if dataset.source == "file"]
    train, held_out, _ = mixture.draw_prompt_mixture(
        config.model_copy(update={"datasets": files}), set(), Path(), Path(config.path)
    )
    return _preview_problem_rows(train, len(held_out))


def _preview_problems(configs: Mapping[str, Any]) -> Preview:
    config = configs["problems"]
    parts = [
        problem_forms.parse_problems(read_file(problems.get_split_file_path(Path(config.path), name)))
        for name in ("train", "test")
    ]
    splits, _ = problems.split_problems(config, parts[0], parts[1])
    preview = _preview_problem_rows(splits["train"], len(splits["test"]))
    shown = [f"user: {row['question']} [[{row['solution']}]]" for row in splits["train"][:ROWS]]
    return preview._replace(shown=shown)


def _preview_test(configs: Mapping[str, Any]) -> Preview:
    config = configs["evaluate"]
    rows = tables.list_records(test_sets.read_or_fetch_test_problems(config, Path(), Path(config.path)))
    return _preview_problem_rows([], len(rows))._replace(
        shown=[_format_problem(row) for row in rows[:ROWS]], kept_columns=_count_kept_columns(rows)
    )


def _preview_text(configs: Mapping[str, Any]) -> Preview:
    documents = corpus.read_documents(Path(configs["corpus"].path))
    return Preview([f"[[{text}]]" for _, text in documents[:ROWS]], len(documents), 0, Counter())


def _preview_problem_rows(rows: Sequence[Record], held_out: int) -> Preview:
    return Preview([_format_problem(row) for row in rows[:ROWS]], len(rows), held_out, _count_kept_columns(rows))


def _count_kept_columns(rows: Sequence[Record]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for row in rows:
        counts.update([*json.loads(row["columns"])] if row.get("columns") else [])
    return counts


def _format_problem(row: Record) -> str:
    answer = f" (answer {row['answer']})" if row["answer"] else ""
    return f"{_format_turns(row.get('history') or '')} user: {row['question']}{answer}".strip()


def _format_turns(messages: str) -> str:
    """A conversation, with what is learned in brackets."""
    turns = []
    for turn in forms.parse_messages_json(messages):
        content = str(turn.get("content") or "")
        learned = turn["role"] == "assistant" and turn.get("weight") != 0
        turns.append(f"{turn['role']}: {f'[[{content}]]' if learned else content}")
    return " ".join(turns)


PREVIEWS: Mapping[str, Callable[[Mapping[str, Any]], Preview]] = {
    "chats": _preview_chats,
    "pairs": _preview_pairs,
    "prompts": _preview_prompts,
    "problems": _preview_problems,
    "test": _preview_test,
    "text": _preview_text,
}
