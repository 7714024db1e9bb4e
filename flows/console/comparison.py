"""A comparison in the terminal: both sides, what differs stage by stage, the metrics, some answers that flipped, the
conclusion.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from flows.console import conclusion
from flows.console.conclusion import interval, signed, value
from flows.lineage.comparison.comparing import Pair, StageChange, Ways
from flows.lineage.comparison.evaluation_comparison import Compared
from flows.lineage.comparison.gate import RequirementVerdict
from flows.lineage.comparison.side_by_side import SideBySide
from tasks.common.terminal import in_one_line

LISTED, ANSWERS, LINE = 4, 2, 160  # differences of a kind and stage, flips each way, characters of an answer
APART = 2  # policies that have a table of their own each; of more there is one for all
WORD = {"added": "only in B", "removed": "only in A", "result": "made otherwise from the same"}


def show(console: Console, comparison: SideBySide, full: bool) -> None:
    """Print all of it, plain and short; `full` shows every metric and every difference."""
    a, b, made, pairs = comparison.a, comparison.b, comparison.made, comparison.found
    for letter, side in (("A", a), ("B", b)):
        console.print(Text(f"{letter}  {in_one_line(side.about)}"))
    console.print()
    lines = of_ways(made, full) if isinstance(made, Ways) else of_stages(made, len(b.records), full)
    for line in lines:
        console.print(Text(line))
    differing = [pair for pair in pairs if not pair.same]
    together = len(pairs) > APART and not full
    for lines in [of_all(pairs)] if together else [of_pair(pair, full) for pair in pairs]:
        console.print()
        for line in lines:
            console.print(Text(line))
    console.print()
    if len(differing) == 1:
        for line in flips(differing[0]):
            console.print(Text(line))
    console.print(Text(conclusion.conclusion((a.name, b.name), pairs), "bold"))


def of_stages(changes: Sequence[StageChange], stages: int, full: bool) -> Iterator[str]:
    """A line for each stage that differs: what differs directly, or through which stages it was touched."""
    lines = stage_lines(changes, full)
    width = max(map(len, lines), default=0)
    yield from (f"{stages:<{width}}  {line}" for stages, line in lines.items())
    same = stages - sum(change.cause != "removed" for change in changes)
    yield f"{same} stage{'s are' if same != 1 else ' is'} the same" if changes else "no stage differs"


def stage_lines(changes: Sequence[StageChange], full: bool) -> dict[str, str]:
    """Stage -> what differs; branches of one stage that differ in the same way are one line, unless all is asked
    for.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for change in changes:
        differing = [] if change.cause == "upstream" else list(differences(change, full)) or [WORD[change.cause]]
        if change.through:
            differing.append(f"through {_few(change.through, full)}")
        if change.same_result:
            differing.append("the result is the same")
        kind = change.stage if full else change.stage.partition("@")[0]
        groups.setdefault((kind, "; ".join(differing) or "through its inputs"), []).append(change.stage)
    return {
        f"{stages[0]}{f' and {len(stages) - 1} more' if stages[1:] else ''}": line
        for (_, line), stages in groups.items()
    }


def differences(change: StageChange, full: bool) -> Iterator[str]:
    """What differs in a stage: parameters, the command, data that no stage makes, code, and what it was made with."""
    if change.params:
        yield _few([f"{key} {old} -> {new}" for key, (old, new) in _texts(change.params)], full)
    if change.command and not change.params:
        yield "command"
    if change.raw:
        raw = {path: change.data[path] for path in change.raw}
        yield "data " + _few([f"{path} {old} -> {new}" for path, (old, new) in _hashes(raw)], full)
    if change.code:
        yield "code " + _few(list(change.code), full)
    if change.environment and (full or change.cause == "result"):
        yield "made with " + _few([f"{name} {old} -> {new}" for name, (old, new) in _texts(change.environment)], full)
    if change.cause == "result":
        yield WORD["result"]


def of_ways(ways: Ways, full: bool) -> Iterator[str]:
    """Where two policies come from, and what their sections say differently."""
    yield f"both come from {', '.join(ways.common) or 'nothing in common'}"
    for letter, stages in zip("AB", ways.own, strict=True):
        yield f"{letter} alone: {', '.join(stages) or 'nothing'}"
    for key, (old, new) in _texts(ways.params):
        yield f"  {key} {old} -> {new}"
    for letter, alone in zip("AB", ways.alone, strict=True):
        if alone:
            texts = [f"{key} {in_one_line(str(setting))}" if full else key for key, setting in alone.items()]
            yield f"  only {letter} has {', '.join(texts)}"


def of_pair(pair: Compared, full: bool) -> Iterator[str]:
    """The table of one pair's metrics under a line of what was compared, and what is to be minded."""
    start = f"{pair.policy}: " if pair.policy else ""
    if pair.fault:
        yield f"{start}{in_one_line(pair.fault)}"
        return
    if pair.same:
        yield f"{start}one and the same evaluation"
        return
    yield start + asked(pair)
    for caution in pair.cautions:
        yield f"  mind: {in_one_line(caution)}"
    names = list(pair.metrics) if full else conclusion.shown(pair.metrics)
    if names:
        yield from _columns(
            ["", "A", "B", "B - A", "95 % interval", *_counted(pair)], [row(pair, name) for name in names]
        )
    if len(names) < len(pair.metrics):
        yield f"  {len(pair.metrics) - len(names)} more metrics: --full"


def of_all(pairs: Sequence[Compared]) -> Iterator[str]:
    """One table of all policies, under what is to be minded of which."""
    minded: dict[str, list[str]] = {}
    for pair in pairs:
        for line in pair.cautions if not pair.same else ():
            minded.setdefault(in_one_line(line), []).append(pair.policy)
        if pair.fault:
            minded.setdefault(in_one_line(pair.fault), []).append(pair.policy)
    differing = [pair for pair in pairs if not pair.same and not pair.fault]
    if alike := [pair.policy for pair in pairs if pair.same]:
        yield f"one and the same evaluation: {', '.join(alike)}"
    for basis in dict.fromkeys(map(asked, differing)):
        policies = [pair.policy for pair in differing if asked(pair) == basis]
        yield basis if len(policies) == len(differing) else f"{', '.join(policies)}: {basis}"
    for line, policies in minded.items():
        yield f"mind{'' if len(policies) == len(pairs) else ' of ' + ', '.join(policies)}: {line}"
    rows = [
        [f"{pair.policy} {name}", *row(pair, name)[1:]]
        for pair in differing
        for name in conclusion.shown(pair.metrics, few=True)
    ]
    if rows:
        counted = next((heads for pair in differing if (heads := _counted(pair))), [])
        yield from _columns(["", "A", "B", "B - A", "95 % interval", *counted], rows)
    yield "  more of each: --full, --json, --html FILE"


def asked(pair: Compared) -> str:
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


def _counted(pair: Compared) -> list[str]:
    return ["gained", "lost", "p"] if any("gained" in row for row in pair.metrics.values()) else []


def row(pair: Compared, name: str) -> list[str]:
    """A metric's cells: its name, both values, the difference, its interval, and what was gained and lost with
    McNemar's p.
    """
    metric = pair.metrics[name]
    cells = [name, value(name, metric["a"]), value(name, metric["b"])]
    if "incomparable" in metric:
        return [*cells, "", metric["incomparable"]]
    cells += [signed(name, metric["difference"]), interval(name, metric)]
    return cells + ([str(metric["gained"]), str(metric["lost"]), f"{metric['p']:.2g}"] if "gained" in metric else [])


def _columns(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    table = [heads, *rows]
    widths = [max((len(row[at]) for row in table if at < len(row)), default=0) for at in range(len(heads))]
    for row in table:
        cells = [f"{cell:<{widths[0]}}" if at == 0 else f"{cell:>{widths[at]}}" for at, cell in enumerate(row)]
        yield ("  " + "  ".join(cells)).rstrip()


def flips(pair: Compared) -> Iterator[str]:
    """The first greedy answers that are right on one side alone."""
    for way, title in (("gained", "right in B alone"), ("lost", "right in A alone")):
        for flip in pair.flips(way)[:ANSWERS]:
            yield f"{title}: {_cut(flip['question'])} ({_cut(flip['reference'])})"
            for letter in "ab":
                yield f"  {letter.upper()}  {_cut(flip[letter]['answer'])}"
        if len(pair.flips(way)) > ANSWERS:
            yield f"  {len(pair.flips(way)) - ANSWERS} more: --html or --json"


def of_verdict(judged: Sequence[RequirementVerdict]) -> Iterator[str]:
    """A line for each requirement, with the numbers in its own unit: a share is one of 1."""
    for judgement in judged:
        metric = judgement.row
        reason = metric.get("incomparable") or (
            f"{metric['difference']:+.4f}, 95 % interval {_end(metric['low'])} to {_end(metric['high'])}"
        )
        yield f"{'holds' if judgement.holds else 'FAILS'}  {judgement.requirement.text}  ({reason})"


def _end(number: float | None) -> str:
    return "?" if number is None else f"{number + 0.0:+.4f}"


def _few(texts: Sequence[str], full: bool) -> str:
    more = f" and {len(texts) - LISTED} more" if len(texts) > LISTED and not full else ""
    return ", ".join(texts if full else texts[:LISTED]) + more


def _texts(pairs: Mapping[str, Pair]) -> Iterator[tuple[str, tuple[str, str]]]:
    for key, (old, new) in pairs.items():
        yield key, (_cut("none" if old is None else str(old)), _cut("none" if new is None else str(new)))


def _hashes(pairs: Mapping[str, Pair]) -> Iterator[tuple[str, tuple[str, str]]]:
    for path, (old, new) in pairs.items():
        yield path, ((old or "none")[:8], (new or "none")[:8])


def _cut(text: str) -> str:
    plain = in_one_line(text)
    return plain if len(plain) <= LINE else f"{plain[: LINE - 4]} ..."
