"""A comparison in the terminal: both sides, what differs stage by stage, the metrics, some answers that flipped, the
conclusion.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from flows.console import conclusion
from flows.console.conclusion import format_confidence_interval, format_metric_difference, format_metric_value
from flows.lineage.comparison.comparing import Pair, StageChange, Ways
from flows.lineage.comparison.evaluation_comparison import Compared
from flows.lineage.comparison.gate import RequirementVerdict
from flows.lineage.comparison.side_by_side import SideBySide
from tasks.common.terminal import format_in_one_line

# differences of a kind and stage, flips each way, characters of an answer
LISTED = 4
ANSWERS = 2
LINE = 160
APART = 2  # policies that have a table of their own each; of more there is one for all
SIDES = ("A", "B")  # what two runs are called
WORD = {"added": "only in B", "removed": "only in A", "result": "made otherwise from the same"}


def print_comparison(console: Console, comparison: SideBySide, full: bool) -> None:
    """Print all of it, plain and short; `full` shows every metric and every difference."""
    a = comparison.a
    b = comparison.b
    made = comparison.made
    pairs = comparison.found
    for letter, side in (("A", a), ("B", b)):
        console.print(Text(f"{letter}  {format_in_one_line(side.about)}"))
    console.print()
    lines = (
        format_policy_origins(made, full, (a.name, b.name))
        if isinstance(made, Ways)
        else format_stage_changes(made, len(b.records), full)
    )
    for line in lines:
        console.print(Text(line))
    differing = [pair for pair in pairs if not pair.same]
    together = len(pairs) > APART and not full
    names = (a.name, b.name) if isinstance(made, Ways) else SIDES
    tables = (
        [format_combined_table(pairs)] if together else [format_pair_comparison(pair, full, names) for pair in pairs]
    )
    for lines in tables:
        console.print()
        for line in lines:
            console.print(Text(line))
    console.print()
    if len(differing) == 1:
        for line in format_flipped_answers(differing[0], names):
            console.print(Text(line))
    console.print(Text(conclusion.format_comparison_conclusion((a.name, b.name), pairs), "bold"))


def format_stage_changes(changes: Sequence[StageChange], stages: int, full: bool) -> Iterator[str]:
    """A line for each stage that differs: what differs directly, or through which stages it was touched."""
    lines = format_lines_by_stage(changes, full)
    width = max(map(len, lines), default=0)
    yield from (f"{stages:<{width}}  {line}" for stages, line in lines.items())
    same = stages - sum(change.cause != "removed" for change in changes)
    yield f"{same} stage{'s are' if same != 1 else ' is'} the same" if changes else "no stage differs"


def format_lines_by_stage(changes: Sequence[StageChange], full: bool) -> dict[str, str]:
    """Stage -> what differs; branches of one stage that differ in the same way are one line, unless all is asked
    for.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for change in changes:
        differing = (
            [] if change.cause == "upstream" else list(format_stage_differences(change, full)) or [WORD[change.cause]]
        )
        if change.through:
            differing.append(f"through {_join_first_texts(change.through, full)}")
        if change.same_result:
            differing.append("the result is the same")
        kind = change.stage if full else change.stage.partition("@")[0]
        groups.setdefault((kind, "; ".join(differing) or "through its inputs"), []).append(change.stage)
    return {
        f"{stages[0]}{f' and {len(stages) - 1} more' if stages[1:] else ''}": line
        for (_, line), stages in groups.items()
    }


def format_stage_differences(change: StageChange, full: bool) -> Iterator[str]:
    """What differs in a stage: parameters, the command, data that no stage makes, code, and what it was made with."""
    if change.params:
        yield _join_first_texts(
            [f"{key} {old} -> {new}" for key, (old, new) in _format_text_pairs(change.params)], full
        )
    if change.command and not change.params:
        yield "command"
    if change.raw:
        raw = {path: change.data[path] for path in change.raw}
        yield "data " + _join_first_texts(
            [f"{path} {old} -> {new}" for path, (old, new) in _format_hash_pairs(raw)], full
        )
    if change.code:
        yield "code " + _join_first_texts(list(change.code), full)
    if change.environment and (full or change.cause == "result"):
        yield "made with " + _join_first_texts(
            [f"{name} {old} -> {new}" for name, (old, new) in _format_text_pairs(change.environment)], full
        )
    if change.cause == "result":
        yield WORD["result"]


def format_policy_origins(ways: Ways, full: bool, names: Sequence[str] = SIDES) -> Iterator[str]:
    """Where two policies come from, and what their sections say differently."""
    yield f"both come from {', '.join(ways.common) or 'nothing in common'}"
    for letter, stages in zip(names, ways.own, strict=True):
        yield f"{letter} alone: {', '.join(stages) or 'nothing'}"
    for key, (old, new) in _format_text_pairs(ways.params):
        yield f"  {key} {old} -> {new}"
    for letter, alone in zip(names, ways.alone, strict=True):
        if alone:
            texts = [f"{key} {format_in_one_line(str(setting))}" if full else key for key, setting in alone.items()]
            yield f"  only {letter} has {', '.join(texts)}"


def format_pair_comparison(pair: Compared, full: bool, names: Sequence[str] = SIDES) -> Iterator[str]:
    """The table of one pair's metrics under a line of what was compared, and what is to be minded.

    `names` are what the columns of both sides are called: two policies, or A and B.
    """
    start = f"{pair.policy}: " if pair.policy else ""
    if pair.fault:
        yield f"{start}{format_in_one_line(pair.fault)}"
        return
    if pair.same:
        yield f"{start}one and the same evaluation"
        return
    yield start + format_compared_sample_counts(pair)
    for caution in pair.cautions:
        yield f"  mind: {format_in_one_line(caution)}"
    metrics = list(pair.metrics) if full else conclusion.select_table_metrics(pair.metrics)
    if metrics:
        yield from _align_columns(
            ["", *names, " - ".join(reversed(names)), "95 % interval", *_list_count_headings(pair)],
            [format_metric_row(pair, name) for name in metrics],
        )
    if len(metrics) < len(pair.metrics):
        yield f"  {len(pair.metrics) - len(metrics)} more metrics: --full"


def format_combined_table(pairs: Sequence[Compared]) -> Iterator[str]:
    """One table of all policies, under what is to be minded of which."""
    minded: dict[str, list[str]] = {}
    for pair in pairs:
        for line in pair.cautions if not pair.same else ():
            minded.setdefault(format_in_one_line(line), []).append(pair.policy)
        if pair.fault:
            minded.setdefault(format_in_one_line(pair.fault), []).append(pair.policy)
    differing = [pair for pair in pairs if not pair.same and not pair.fault]
    if alike := [pair.policy for pair in pairs if pair.same]:
        yield f"one and the same evaluation: {', '.join(alike)}"
    for basis in dict.fromkeys(map(format_compared_sample_counts, differing)):
        policies = [pair.policy for pair in differing if format_compared_sample_counts(pair) == basis]
        yield basis if len(policies) == len(differing) else f"{', '.join(policies)}: {basis}"
    for line, policies in minded.items():
        yield f"mind{'' if len(policies) == len(pairs) else ' of ' + ', '.join(policies)}: {line}"
    rows = [
        [f"{pair.policy} {name}", *format_metric_row(pair, name)[1:]]
        for pair in differing
        for name in conclusion.select_table_metrics(pair.metrics, few=True)
    ]
    if rows:
        counted = next((heads for pair in differing if (heads := _list_count_headings(pair))), [])
        yield from _align_columns(["", *SIDES, " - ".join(reversed(SIDES)), "95 % interval", *counted], rows)
    yield "  more of each: --full, --json, --html FILE"


def format_compared_sample_counts(pair: Compared) -> str:
    """How many problems, or seeds and episodes, the comparison rests on."""
    if pair.flow != "language":
        row: Mapping[str, Any] = next(iter(pair.metrics.values()), {})
        if not row:
            return "no seed and episode in common"
        return f"{row['seeds']} seed{'s' * (row['seeds'] != 1)} in common, {row['episodes']} episodes each"
    counts = pair.problems
    if counts["a"] == counts["b"] == counts["common"]:
        return f"the same {counts['common']} problems"
    reworded = f"; {counts['reworded']} of one name differ in content" if counts["reworded"] else ""
    return f"{counts['common']} problems in common, of {counts['a']} in A and {counts['b']} in B{reworded}"


def _list_count_headings(pair: Compared) -> list[str]:
    return ["gained", "lost", "p"] if any("gained" in row for row in pair.metrics.values()) else []


def format_metric_row(pair: Compared, name: str) -> list[str]:
    """A metric's cells: its name, both values, the difference, its interval, and what was gained and lost with
    McNemar's p.
    """
    metric = pair.metrics[name]
    cells = [name, format_metric_value(name, metric["a"]), format_metric_value(name, metric["b"])]
    if "incomparable" in metric:
        return [*cells, "", metric["incomparable"]]
    cells += [format_metric_difference(name, metric["difference"]), format_confidence_interval(name, metric)]
    return cells + ([str(metric["gained"]), str(metric["lost"]), f"{metric['p']:.2g}"] if "gained" in metric else [])


def _align_columns(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    table = [heads, *rows]
    widths = [max((len(row[at]) for row in table if at < len(row)), default=0) for at in range(len(heads))]
    for row in table:
        cells = [f"{cell:<{widths[0]}}" if at == 0 else f"{cell:>{widths[at]}}" for at, cell in enumerate(row)]
        yield ("  " + "  ".join(cells)).rstrip()


def format_flipped_answers(pair: Compared, names: Sequence[str]) -> Iterator[str]:
    """The first greedy answers that are right on one side alone."""
    width = max(map(len, names))
    for way, title in (("gained", f"right in {names[1]} alone"), ("lost", f"right in {names[0]} alone")):
        for flip in pair.flips(way)[:ANSWERS]:
            yield f"{title}: {_truncate_text(flip['question'])} ({_truncate_text(flip['reference'])})"
            for name, side in zip(names, "ab", strict=True):
                yield f"  {name:<{width}}  {_truncate_text(flip[side]['answer'])}"
        if len(pair.flips(way)) > ANSWERS:
            yield f"  {len(pair.flips(way)) - ANSWERS} more: --html or --json"


def format_verdict_lines(judged: Sequence[RequirementVerdict]) -> Iterator[str]:
    """A line for each requirement, with the numbers in its own unit: a share is one of 1."""
    for judgement in judged:
        metric = judgement.row
        reason = metric.get("incomparable") or (
            f"{metric['difference']:+.4f}, 95 % interval {_format_bound(metric['low'])} to "
            f"{_format_bound(metric['high'])}"
        )
        yield f"{'holds' if judgement.holds else 'FAILS'}  {judgement.requirement.text}  ({reason})"


def _format_bound(number: float | None) -> str:
    return "?" if number is None else f"{number + 0.0:+.4f}"


def _join_first_texts(texts: Sequence[str], full: bool) -> str:
    more = f" and {len(texts) - LISTED} more" if len(texts) > LISTED and not full else ""
    return ", ".join(texts if full else texts[:LISTED]) + more


def _format_text_pairs(pairs: Mapping[str, Pair]) -> Iterator[tuple[str, tuple[str, str]]]:
    for key, (old, new) in pairs.items():
        yield (
            key,
            (_truncate_text("none" if old is None else str(old)), _truncate_text("none" if new is None else str(new))),
        )


def _format_hash_pairs(pairs: Mapping[str, Pair]) -> Iterator[tuple[str, tuple[str, str]]]:
    for path, (old, new) in pairs.items():
        yield path, ((old or "none")[:8], (new or "none")[:8])


def _truncate_text(text: str) -> str:
    plain = format_in_one_line(text)
    return plain if len(plain) <= LINE else f"{plain[: LINE - 4]} ..."
