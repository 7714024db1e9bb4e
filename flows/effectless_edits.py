"""Edits of code that have no effect: a plan passes them over, and a run records that the stages stay as they are."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from flows.console import accepted
from flows.engine.state import PlannedStage

if TYPE_CHECKING:
    from flows.engine.dvc_changes import Seen
    from flows.engine.plan import Accepts
    from flows.lineage.acceptance.judging import Judge


def judge(root: Path) -> "Accepts":
    """What a plan asks about a stage that is out of date: whether it is so by such edits alone."""
    judges: list[Judge] = []

    def words(stage: Any, seen: "Seen") -> Sequence[str]:
        if not judges:  # nothing is imported where nothing has changed
            from flows.lineage.acceptance.judging import Judge

            judges.append(Judge(root))
        return judges[0].words(stage, seen)

    return words


def record(root: Path, console: Console, flow: str, planned: Sequence[PlannedStage], dry_run: bool) -> None:
    """Record the edits without effect, and say so; with `dry_run` only say so."""
    names = [stage.name for stage in planned if stage.accepts]
    if names and not dry_run:
        from flows.lineage.acceptance import accepting

        accepting.accept_edits(root, flow, names)
    for line in accepted.lines(planned, recorded=not dry_run):
        console.print(line, markup=False)
