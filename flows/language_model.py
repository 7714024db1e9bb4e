"""The language-model flow: from problems and a pretrained model to preference-tuned policies and a report.

dvc.yaml holds the graph: every stage that the report needs, directly or not, is part of the flow.
"""

from collections.abc import Sequence
from pathlib import Path

from flows.engine.coordinator import Elsewhere
from flows.engine.prefect_flow import run_flow
from flows.engine.state import PlannedStage, StageResult, Watcher

TARGETS = ("report",)


def run(
    root: Path,
    planned: Sequence[PlannedStage],
    *,
    jobs: int | None,
    watch: Watcher,
    workers: Elsewhere | None = None,
    wait: bool = False,
    cold: bool = False,
    settled: bool = True,
) -> list[StageResult]:
    """Execute a plan; returns every stage's result, in the plan's order, without `settled` while its records are still being written."""
    return run_flow(
        root,
        planned,
        flow_name="language",
        jobs=jobs,
        watch=watch,
        workers=workers,
        wait=wait,
        cold=cold,
        settled=settled,
    )
