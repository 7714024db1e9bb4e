"""The offline-RL flow: behaviour policies and the data sets they leave in, learned policies and a table of scores out.

dvc.yaml holds the graph: of the data sets and policies that params.yaml names, those that the report asks for are made.
"""

from collections.abc import Sequence
from pathlib import Path

from flows.engine.prefect_flow import run_flow
from flows.engine.state import PlannedStage, StageResult, Watcher

TARGETS = ("offline_report",)


def run(root: Path, planned: Sequence[PlannedStage], *, jobs: int | None, watch: Watcher) -> list[StageResult]:
    """Execute a plan; every stage's result, in the plan's order."""
    return run_flow(root, planned, flow_name="offline", jobs=jobs, watch=watch)
