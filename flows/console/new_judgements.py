"""What people's new judgements changed, as a short table after the run that read them."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console

from flows.console import conclusion
from flows.console.conclusion import interval, signed, value
from flows.lineage.new_judgements import Changed

FIRST = "never run"
LISTED = 4  # stages that ran for another reason, by name


def show(console: Console, changed: Changed) -> None:
    """Print the table."""
    for line in lines(changed):
        console.print(line, markup=False)


def lines(changed: Changed) -> Iterator[str]:
    """The table line by line: how many judgements there are, each measure before and after, then what else changed in
    the run.
    """
    before, after = (
        sum(metrics["preferences"].get("judgements", {}).values()) for metrics in (changed.before, changed.after)
    )
    people = changed.after["preferences"]["people"]
    yield (
        f"what {_signed(after - before)} judgements changed: there are {after:,} now, by {people} {_people(people)}, "
        f"where there were {before:,}"
    )
    table = [["", "before", "after", "difference", "95 % interval"], *_counts(changed), *_policies(changed)]
    widths = [max(len(row[at]) for row in table if at < len(row)) for at in range(len(table[0]))]
    for row in table:
        cells = [
            f"{row[0]:<{widths[0]}}",
            *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=False)),
        ]
        yield ("  " + "  ".join(cells)).rstrip()
    if changed.same:
        yield f"  the same models as before: {', '.join(changed.same)}"
    if other_causes := {stage: reason for stage, reason in changed.besides.items() if reason != FIRST}:
        more = f" and {len(other_causes) - LISTED} more" if len(other_causes) > LISTED else ""
        named = ", ".join(f"{stage} ({reason})" for stage, reason in [*other_causes.items()][:LISTED])
        yield f"  not the judgements' doing alone: {named}{more}"


def _counts(changed: Changed) -> Iterator[list[str]]:
    old, new = changed.before, changed.after
    for title, stage, path in (
        ("pairs to learn from", "preferences", ("pairs", "train")),
        ("held-out pairs", "preferences", ("pairs", "test")),
    ):
        yield [title, *(_number(_at(measured[stage], path)) for measured in (old, new))]
    accuracies = [_at(measured["reward_model"], ("accuracy",)) for measured in (old, new)]
    if accuracies[1] is not None:
        shown = ["" if measured is None else f"{100 * measured:.1f} %" for measured in accuracies]
        apart = "" if accuracies[0] is None else f"{100 * (accuracies[1] - accuracies[0]):+.1f}"
        yield ["reward model: accuracy on held-out pairs", *shown, apart, "other pairs are held out" if apart else ""]


def _policies(changed: Changed) -> Iterator[list[str]]:
    for pair in changed.policies:
        for name in conclusion.headline(pair) if pair.metrics else ():
            row = pair.metrics[name]
            cells = [f"{pair.policy}: {name}", value(name, row["a"]), value(name, row["b"])]
            yield cells + (
                ["", row["incomparable"]]
                if "incomparable" in row
                else [signed(name, row["difference"]), interval(name, row)]
            )


def _at(metrics: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    node: Any = metrics
    for name in path:
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def _number(count: int | None) -> str:
    return "none" if count is None else f"{count:,}"


def _signed(count: int) -> str:
    return f"{count:,} new" if count >= 0 else f"{-count:,} fewer"


def _people(count: int) -> str:
    return "person" if count == 1 else "people"
