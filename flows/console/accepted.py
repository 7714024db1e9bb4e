"""Edits of code that have no effect, as a person reads of them before they are recorded and when they are."""

from collections.abc import Iterator, Sequence

from flows.engine.state import PlannedStage

NAMED = 4  # stages that a line names


def lines(planned: Sequence[PlannedStage], recorded: bool) -> Iterator[str]:
    """A line for each kind of edit, with the stages that it leaves as they are."""
    by_edits: dict[str, list[str]] = {}
    for stage in planned:
        for edit in stage.accepts:
            by_edits.setdefault(edit, []).append(stage.name)
    merged: dict[tuple[str, ...], list[str]] = {}
    for edit, names in by_edits.items():
        merged.setdefault(tuple(names), []).append(edit)
    for stages, edits in merged.items():
        many = len(stages) > 1
        stay = f"{named(stages)} {'stay as they are' if many else 'stays as it is'}"
        yield f"{'accepted' if recorded else 'the next run accepts'}: {'; '.join(edits)}; {stay}"


def named(names: Sequence[str]) -> str:
    """The names as a sentence has them; of many only the first."""
    if len(names) > NAMED + 1:
        return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
