"""What made stages out of date, as a person reads it: a heading for each change, and the lines that differ."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from flows.engine.stage_types import PlannedStage
from flows.lineage.staleness import Cause, find_staleness_causes
from tasks.common.terminal import format_in_one_line

LINES = 200  # of a change that are shown
STYLES = {"-": "red", "+": "green", "@": "cyan"}


def print_staleness_causes(console: Console, root: Path, late: Sequence[PlannedStage]) -> None:
    """Print the causes of every stage that would run; a cause that stages share is shown once, with all their names."""
    stages_by_cause: dict[str, tuple[Cause, list[str]]] = {}
    for stage in late:
        for cause in find_staleness_causes(root, stage.name):
            stages_by_cause.setdefault(f"{cause.what}\n{cause.lines}", (cause, []))[1].append(stage.name)
    explained = {name for _, names in stages_by_cause.values() for name in names}
    for cause, names in stages_by_cause.values():
        console.print(Text(f"{format_in_one_line(cause.what)} ({', '.join(names)})", "bold"))
        for line in cause.lines[:LINES]:
            console.print(Text(f"  {format_in_one_line(line)}", STYLES.get(line[:1], "")))
        if len(cause.lines) > LINES:
            console.print(f"  and {len(cause.lines) - LINES} more lines")
    for stage in late:
        if stage.name not in explained:
            console.print(f"{stage.name}: {stage.reason}", markup=False)
