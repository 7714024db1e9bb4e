"""What a person should know of planned stages beside why they run: which are frozen, whose outs came from elsewhere,
and which a pull would bring.
"""

from collections.abc import Iterator, Mapping, Sequence

from flows.engine.stage_types import PlannedStage

NAMED = 4  # stages that a line names


def format_plan_remarks(planned: Sequence[PlannedStage], remote: str) -> Iterator[str]:
    """A line for each frozen stage, one for all whose outs came from elsewhere, and one for those whose outs DVC's
    default `remote` may have.
    """
    for stage in planned:
        if stage.frozen is not None:
            although = f", although {stage.frozen}" if stage.frozen else ""
            yield f"{stage.name} is frozen and does not run{although}; `dvc unfreeze {stage.name}` ends that"
    elsewhere = [stage.name for stage in planned if stage.elsewhere]
    if elsewhere:
        made = f"{format_name_list(elsewhere)}: made elsewhere, by no run that DVC's run cache has here"
        yield f"{made}; `dvc pull --run-cache` brings what was pushed with `dvc push --run-cache`"
    missing = [stage.name for stage in planned if stage.missing]
    if missing and remote:
        bring = f"`dvc pull` or `posttrain run --pull` would bring them from {remote}"
        yield f"{format_name_list(missing)}: dvc.lock has results that are not here; {bring}"


def format_library_changes(stages_by_change: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """One line for all results that were made with other versions of libraries than those installed."""
    changes = [f"{change} ({format_name_list(stages)})" for change, stages in stages_by_change.items()]
    if changes:
        yield f"up to date, but made with {'; '.join(changes)}"


def format_name_list(names: Sequence[str]) -> str:
    """The names as a sentence has them; of many only the first."""
    if len(names) > NAMED + 1:
        return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
