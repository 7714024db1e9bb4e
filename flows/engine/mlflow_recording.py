"""One MLflow run for each execution of a stage, and one parent run that names the run behind every stage's current output.

The stage itself logs its parameters and metrics; the engine creates the run, records its inputs and outputs,
and ends it.
"""

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from threading import Lock

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag

from flows.engine import dvc_lock, environment, mlflow_runs, mlflow_store
from flows.engine.coordinator import Coordinator
from flows.engine.dvc_lock import Entry, read_entries
from flows.engine.dvc_repository import PlanError
from flows.engine.mlflow_runs import PREFIX
from flows.engine.state import StageResult
from tasks.common import mlflow_database


class FlowRun:
    """Writes the runs of one flow execution. Opening it ends the runs that a killed process left as running.

    Every fault of the database is a PlanError of one line.
    """

    def __init__(self, root: Path, flow: str) -> None:
        self.root, self.uri = root.absolute(), mlflow_database.address(root)
        self.client = mlflow_store.open_store(self.root)
        self._logging_inputs = Lock()  # MLflow's insert fails if two stages log the same new input at once
        self._environment = {PREFIX + "engine": "true", **_environment(self.root)}
        tags = {**self._environment, PREFIX + "flow": flow}
        with mlflow_runs.one_line():
            self._experiment = mlflow_store.experiment(self.client, self.root, flow)
            _end_stale_runs(self.client, self._experiment, self.root)
            self.parent = self.client.create_run(self._experiment, run_name=flow, tags=tags).info.run_id

    def start(self, stage: str, entry: Entry, reason: str) -> str:
        """Create the run of a stage that is about to be executed, with its inputs; `entry` is its future entry of dvc.lock."""
        tags = {
            **self._environment,
            **mlflow_store.in_tags(stage, entry),
            PREFIX + "reason": reason,
            "mlflow.parentRunId": self.parent,
            "mlflow.source.name": str(entry["cmd"]),
        }
        data = {path: md5 for path, md5 in dvc_lock.hashes(entry, "deps").items() if not path.endswith(".py")}
        with mlflow_runs.one_line():
            run_id: str = self.client.create_run(self._experiment, run_name=stage, tags=tags).info.run_id
            with self._logging_inputs:
                self.client.log_inputs(run_id, [_dataset(path, md5) for path, md5 in data.items()])
        return run_id

    def made(self, run_id: str, entry: Entry) -> None:
        """Tag the run with what it made. This comes before DVC's records, so that a kill in between leaves no gap."""
        with mlflow_runs.one_line():
            mlflow_store.set_tags(self.client, run_id, mlflow_store.out_tags(entry))

    def end(self, run_id: str, status: str, log: Path) -> None:
        """Keep the stage's log with the run and end it as FINISHED, FAILED or KILLED.

        A run whose outs are in the run cache is FINISHED even if the stage then failed or was killed, since the outs may be restored.
        """
        with mlflow_runs.one_line():
            if status != "FINISHED" and mlflow_store.in_run_cache(self.root, self.client.get_run(run_id).data.tags):
                status = "FINISHED"
            self.client.set_terminated(run_id, status)
            if log.exists():
                self.client.log_artifact(run_id, str(log))

    def find(self, stage: str, entry: Entry) -> str | None:
        """The run that made a stage's current outs, for a stage that did not run now."""
        with mlflow_runs.one_line():
            return mlflow_store.find(self.root, stage, entry)

    def close(self, results: Iterable[StageResult], complete: bool = True) -> None:
        """Record in the parent run how each stage ended and which run made its output.

        `complete` is False where the flow was stopped before its end.
        """
        tags: dict[str, str] = {}
        for result in results:
            tags[PREFIX + mlflow_store.tag_name("state", result.stage)] = result.state
            if result.mlflow_run_id:
                tags[PREFIX + mlflow_store.tag_name("run", result.stage)] = result.mlflow_run_id
        status = "FAILED" if {"failed", "skipped"}.intersection(tags.values()) else "FINISHED"
        with mlflow_runs.one_line():
            mlflow_store.set_tags(self.client, self.parent, tags)
            self.client.set_terminated(self.parent, status if complete else "KILLED")


def settle(root: Path, flow: str) -> None:
    """End the runs that a killed process left as running. For when nothing else is to run; does nothing beside another run."""
    with suppress(PlanError), Coordinator(root), mlflow_runs.one_line():
        client = mlflow_store.open_store(root)
        _end_stale_runs(client, mlflow_store.experiment(client, root, flow), root)


def _end_stale_runs(client: MlflowClient, experiment: str, root: Path) -> None:
    """End the runs that a killed process left as running: FINISHED if the result is in dvc.lock or the run cache, else KILLED."""
    entries = read_entries(root)
    running = f"attributes.status = 'RUNNING' and tags.`{PREFIX}engine` = 'true'"
    for run in client.search_runs([experiment], running):
        tags = run.data.tags
        entry = entries.get(tags.get(PREFIX + "stage", ""))
        recorded = entry is not None and {
            **mlflow_store.in_tags(tags[PREFIX + "stage"], entry),
            **mlflow_store.out_tags(entry),
        }
        finished = (recorded and recorded.items() <= tags.items()) or mlflow_store.in_run_cache(root, tags)
        client.set_terminated(run.info.run_id, "FINISHED" if finished else "KILLED")


def _dataset(path: str, md5: str) -> DatasetInput:
    source = json.dumps({"path": path, "md5": md5})
    dataset = Dataset(name=path, digest=md5[:36], source_type="dvc", source=source)
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "input")])


def _environment(root: Path) -> dict[str, str]:
    """The tags with the commit, the machine and the versions of this execution."""
    commit, dirty = environment.code(root)
    source = {"mlflow.source.git.commit": commit} if commit != "none" else {}
    versions = {f"{PREFIX}env.{name}": value for name, value in environment.versions().items()}
    return {PREFIX + "git_commit": commit, PREFIX + "git_dirty": dirty, **source, **versions}
