"""What people's new judgements changed, as a short table after the run that read them."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console

from flows.console import conclusion
from flows.console.conclusion import format_confidence_interval, format_metric_difference, format_metric_value
from flows.lineage.new_judgements import Changed

FIRST = "never run"
LISTED = 4  # stages that ran for another reason, by name


def print_judgement_changes(console: Console, changed: Changed) -> None:
    """Print the table."""
    for line in format_judgement_changes(changed):
        console.print(line, markup=False)


def format_judgement_changes(changed: Changed) -> Iterator[str]:
    """The table line by line: how many judgements there are, each measure before and after, then what else changed in
    the run.
    """
    before, after = (
        sum(metrics["preferences"].get("judgements", {}).values()) for metrics in (changed.before, changed.after)
    )
    people = changed.after["preferences"]["people"]
    yield (
        f"what {_format_count_change(after - before)} judgements changed: there are {after:,} now, by {people} "
        f"{_pluralize_person(people)}, "
        f"where there were {before:,}"
    )
    table = [
        ["", "before", "after", "difference", "95 % interval"],
        *_iterate_pair_and_accuracy_rows(changed),
        *_iterate_policy_rows(changed),
    ]
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


def _iterate_pair_and_accuracy_rows(changed: Changed) -> Iterator[list[str]]:
    old = changed.before
    new = changed.after
    for title, stage, path in (
        ("pairs to learn from", "preferences", ("pairs", "train")),
        ("held-out pairs", "preferences", ("pairs", "test")),
    ):
        yield [title, *(_format_count(_get_nested_value(measured[stage], path)) for measured in (old, new))]
    accuracies = [_get_nested_value(measured["reward_model"], ("accuracy",)) for measured in (old, new)]
    if accuracies[1] is not None:
        shown = ["" if measured is None else f"{100 * measured:.1f} %" for measured in accuracies]
        apart = "" if accuracies[0] is None else f"{100 * (accuracies[1] - accuracies[0]):+.1f}"
        yield ["reward model: accuracy on held-out pairs", *shown, apart, "other pairs are held out" if apart else ""]


def _iterate_policy_rows(changed: Changed) -> Iterator[list[str]]:
    for pair in changed.policies:
        for name in conclusion.select_headline_metrics(pair) if pair.metrics else ():
            row = pair.metrics[name]
            cells = [f"{pair.policy}: {name}", format_metric_value(name, row["a"]), format_metric_value(name, row["b"])]
            yield cells + (
                ["", row["incomparable"]]
                if "incomparable" in row
                else [format_metric_difference(name, row["difference"]), format_confidence_interval(name, row)]
            )


def _get_nested_value(metrics: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    node: Any = metrics
    for name in path:
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def _format_count(count: int | None) -> str:
    return "none" if count is None else f"{count:,}"


def _format_count_change(count: int) -> str:
    return f"{count:,} new" if count >= 0 else f"{-count:,} fewer"


def _pluralize_person(count: int) -> str:
    return "person" if count == 1 else "people"
