"""The offline-RL flow: from behaviour policies and the data sets recorded with them to learned policies and a table of scores.

dvc.yaml holds the graph. Of the data sets and policies that params.yaml names, only those that the report needs are made.
"""

from collections.abc import Sequence
from pathlib import Path

from flows.engine.coordinator import Elsewhere
from flows.engine.prefect_flow import run_flow
from flows.engine.state import PlannedStage, StageResult, Watcher

TARGETS = ("offline_report",)


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
        flow_name="offline",
        jobs=jobs,
        watch=watch,
        workers=workers,
        wait=wait,
        cold=cold,
        settled=settled,
    )
