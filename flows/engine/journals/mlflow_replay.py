"""Writes to MLflow what a journal says, at the times when it was."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flows.engine.dvc_repository import PlanError
from flows.engine.journals.journal import FAILED, Event
from flows.engine.journals.journalled_run import decode_code_state, decode_stage_result
from flows.engine.mlflow_flow_recorder import FlowRecorder


class JournalReplay:
    """One run of a flow. An event may come again after a kill: what is written twice is the same."""

    def __init__(self, root: Path, folder: Path, event: Event) -> None:
        """`event` is the journal's first one; PlanError where MLflow's records cannot be used at all."""
        self.root = root
        self.folder = folder
        self.faults: dict[str, str] = {}  # by stage
        self._source = decode_code_state(event["source"])
        self._stages = dict[str, str]()
        begun = event["run"], event["time"], event["environment"]
        self._run = FlowRecorder(root, event["flow"], self._source, *begun)
        self._kinds: Mapping[str, Callable[[Event], None]] = {
            "start": self._create_stage_run,
            "follow": lambda event: self._run.follow(event["run"], self._get_log_path(event).with_suffix(".records")),
            "made_by": lambda event: self._run.record_worker_environment(event["run"], event["facts"]),
            "waits": lambda event: self._run.waits(event["run"], event["line"]),
            "made": lambda event: self._run.made(event["run"], event["stage"], event["entry"]),
            "end_run": lambda event: self._run.end(event["run"], event["status"], self._get_log_path(event)),
            "close": self._end_pipeline_run,
        }

    def write(self, event: Event) -> None:
        """Write one event; what cannot be written is noted as a fault of its stage."""
        self._run.at = event["time"]
        try:
            if handle := self._kinds.get(event["kind"]):
                handle(event)
        except PlanError as error:
            self.faults.setdefault(self._stages.get(event.get("run", ""), ""), str(error))
            if event["kind"] == "start":  # who waits for this run waits in vain
                (self.folder / FAILED).touch()

    def end_unfinished_runs(self, time: int) -> None:
        """End what has not ended, for the process that ran it was killed at this time."""
        self._run.at = time
        try:
            self._run.end_unfinished_runs()
        except PlanError as error:
            self.faults.setdefault("", str(error))

    def _create_stage_run(self, event: Event) -> None:
        self._stages[event["run"]] = event["stage"]
        source = decode_code_state(event["source"]) if event["source"] else self._source
        self._run.create(event["stage"], event["entry"], event["reason"], source, event["run"])

    def _get_log_path(self, event: Mapping[str, Any]) -> Path:
        return self.folder / str(event["run"]) / Path(event["log"]).name

    def _end_pipeline_run(self, event: Event) -> None:
        results = [decode_stage_result(result) for result in event["results"]]
        self._run.close(results, event["complete"], event["name_stages"])
