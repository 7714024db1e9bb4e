"""What the engine tells MLflow of a run, whoever writes it: at once (`mlflow_flow_recorder`), or from a journal."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from flows.engine.dvc_lock import Entry
from flows.engine.stage_types import StageResult


class Recorder(Protocol):
    """Records one run of a pipeline: a run in MLflow for it, and one for each execution of a stage.

    Faults are a PlanError of one line.
    """

    parent: str  # the pipeline's run in MLflow

    def start(self, stage: str, entry: Entry, reason: str) -> str:
        """The id of the run of a stage that is about to be executed; `entry` is its future entry of dvc.lock."""

    def variables(self, run_id: str, log: Path) -> dict[str, str]:
        """The environment variables by which the command finds its run; its records count from now on."""

    def record_worker_environment(self, run_id: str, facts: Mapping[str, str]) -> None:
        """Note the environment of the worker that made the run's outs."""

    def waits(self, run_id: str, line: str) -> None:
        """Note that the run was ended because its stage waits for people."""

    def made(self, run_id: str, stage: str, entry: Entry) -> None:
        """Note what the run made. This comes before DVC's records, so that a kill in between leaves no gap."""

    def end(self, run_id: str, status: str, log: Path) -> None:
        """End the run of a stage as FINISHED, FAILED or KILLED."""

    def find(self, stage: str, entry: Entry) -> str | None:
        """The run that made a stage's current outs, for a stage that did not run now."""

    def close(self, results: Iterable[StageResult], complete: bool = True, name_stages: bool = True) -> None:
        """End the pipeline's run; `complete` is False where it was stopped.

        Without `name_stages` only how it all ended is noted.
        """
