"""One MLflow run for each execution of a stage, and one parent run that names the run behind every stage's current
output.

The stage leaves its parameters and metrics in a file; the engine creates the run, records its inputs and outputs,
writes what the stage recorded, and ends it.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Lock
from time import time_ns

from mlflow import MlflowClient

from flows.engine import mlflow_client, mlflow_run_lookup
from flows.engine.coordinator import Coordinator
from flows.engine.dvc_lock import Entry, read_lock_entries
from flows.engine.dvc_repository import PlanError
from flows.engine.journals.journal import collect_journal_run_ids
from flows.engine.mlflow_run_lookup import PEAK_MEMORY, PREFIX
from flows.engine.mlflow_run_writer import Rows
from flows.engine.records import mlflow_artifacts
from flows.engine.stage_types import StageResult
from tasks.common import mlflow_database, run_environment, source_code
from tasks.common.source_code import CodeState


class FlowRecorder:
    """Writes the runs of one flow execution. Opening it ends the runs that a killed process left as running.

    Every fault of the database is a PlanError of one line.
    """

    def __init__(
        self,
        root: Path,
        flow: str,
        source: CodeState | None = None,
        run_id: str | None = None,
        at: int | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`source` is the state of the code that stages run with, where that is not the workspace's of the moment.

        What happened before is recorded with `run_id`, the id that the run was given in the repository's own database,
        and `at`, its time in milliseconds, which is then set before each call, and `environ`, the tags of its
        environment.
        """
        self._source = source
        self.root = root.absolute()
        self.uri = mlflow_database.get_tracking_address(root)
        # None: now
        self._flow = flow
        self.at = at
        self.client = mlflow_client.open_mlflow_client_after_recording(self.root)
        self._logging_inputs = Lock()  # MLflow's insert fails if two stages log the same new input at once
        # the stages at work by their runs
        self._database = Lock()
        self._rows = dict[str, Rows]()
        self._unrecorded: dict[str, tuple[str, Entry]] = {}  # what runs have made, where writing it down failed
        self._environment = {
            **mlflow_database.make_clone_tags(self.root),
            PREFIX + "engine": "true",
            **(environ or run_environment.collect_run_tags()),
        }
        source = source or source_code.read_code_state(self.root)
        self._patch = source.digest  # what the flow's own run keeps
        tags = {**self._environment, **mlflow_client.build_source_tags(source), PREFIX + "flow": flow}
        tags["mlflow.source.name"] = f"posttrain run {flow}"
        with mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
            self._experiment = mlflow_client.get_or_create_experiment_id(self.client, self.root, flow)
            _end_stale_runs(self.client, self._experiment, self.root, collect_journal_run_ids(self.root))
            self.parent = self._create_run(flow, tags, run_id)
            mlflow_artifacts.check_artifacts_reachable(self.root, self.parent)
        mlflow_client.save_patch_artifact(self.root, self.parent, source)

    def _create_run(self, name: str, tags: Mapping[str, str], run_id: str | None) -> str:
        if run_id is None:
            created: str = self.client.create_run(self._experiment, self.at, dict(tags), name).info.run_id
            return created
        started = self.at or time_ns() // 1_000_000
        mlflow_database.insert_run(self.root, self._flow, run_id, name, tags["mlflow.user"], started)
        mlflow_client.set_run_tags(self.client, run_id, tags)
        return run_id

    def start(self, stage: str, entry: Entry, reason: str) -> str:
        """Create the run of a stage that is about to be executed, with its inputs; `entry` is its future entry of
        dvc.lock.
        """
        # of this moment: an edit may have come since the flow began
        return self.create(stage, entry, reason, self._source or source_code.read_code_state(self.root))

    def create(self, stage: str, entry: Entry, reason: str, source: CodeState, run_id: str | None = None) -> str:
        """The same with this state of the code."""
        tags = {
            **self._environment,
            **mlflow_client.build_source_tags(source),
            **mlflow_client.build_input_tags(stage, entry),
            PREFIX + "reason": reason,
            "mlflow.parentRunId": self.parent,
            "mlflow.source.name": str(entry["cmd"]),
        }
        with mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
            run_id = self._create_run(stage, tags, run_id)
            with self._logging_inputs:
                mlflow_client.log_dataset_inputs(self.client, run_id, entry)
        if source.digest != self._patch:
            mlflow_client.save_patch_artifact(self.root, run_id, source)
        return run_id

    def record_worker_environment(self, run_id: str, facts: Mapping[str, str]) -> None:
        """Note the environment of the worker that made the run's outs, in place of this process's own."""
        with mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
            mlflow_client.set_run_tags(
                self.client, run_id, {f"{PREFIX}env.{name}": value for name, value in facts.items()}
            )

    def waits(self, run_id: str, line: str) -> None:
        """Note that a stage waits for people, so that its run, which is KILLED, is not taken for one that was
        stopped.
        """
        with mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
            mlflow_client.set_run_tags(self.client, run_id, {PREFIX + "waiting": line})

    def variables(self, run_id: str, log: Path) -> dict[str, str]:
        """What a command finds its run by, and the products that the run is recorded with.

        From now on what it leaves in its file of records is written to the run.
        """
        file = log.with_suffix(".records")
        file.parent.mkdir(parents=True, exist_ok=True)
        log.with_suffix(".memory").unlink(missing_ok=True)
        file.unlink(missing_ok=True)  # a process that a kill has left may still write to the old one
        file.touch()
        self.follow(run_id, file)
        return {
            # for a command that knows MLflow; the stages here leave what they record in the file
            "MLFLOW_RUN_ID": run_id,
            "MLFLOW_TRACKING_URI": self.uri,
            "POSTTRAIN_RECORDS": str(file),
            run_environment.PRODUCTS: self._environment[run_environment.TAG + "products"],
        }

    def follow(self, run_id: str, file: Path) -> None:
        """Write what a stage leaves in its file of records to its run, from now on."""
        self._rows[run_id] = Rows(self.client, run_id, file, self._database)
        self._rows[run_id].follow()

    def made(self, run_id: str, stage: str, entry: Entry) -> None:
        """Note what the run made, after all its rows. This comes before DVC's records, so that a kill in between leaves
        no gap.

        What cannot be written now is written by `end`, which says so if it cannot be written then either.
        """
        self._unrecorded[run_id] = (stage, entry)
        if rows := self._rows.get(run_id):
            with suppress(PlanError):
                rows.write()
        with suppress(PlanError):
            self._record_outs(run_id)

    def _record_outs(self, run_id: str) -> None:
        if run_id not in self._unrecorded:
            return
        stage, entry = self._unrecorded[run_id]
        with (
            mlflow_run_lookup.convert_mlflow_errors_to_plan_error()
        ):  # the tags first: by them the outs find this run, even where its file is missing
            mlflow_client.set_run_tags(self.client, run_id, mlflow_client.build_out_tags(entry))
            mlflow_client.save_record_artifact(self.root, run_id, stage, entry, self.client.get_run(run_id).data.tags)
        del self._unrecorded[run_id]

    def end(self, run_id: str, status: str, log: Path) -> None:
        """Write what the stage recorded and the memory that it took, keep its log with the run and end it as FINISHED,
        FAILED or KILLED.

        A run whose outs are in the run cache is FINISHED even if the stage then failed or was killed, since the outs
        may be restored.
        """
        with ExitStack() as last:  # each is tried, whatever becomes of the others
            last.callback(self._end, run_id, status, log)
            last.callback(self._record_outs, run_id)
            if rows := self._rows.pop(run_id, None):
                rows.finish()

    def _end(self, run_id: str, status: str, log: Path) -> None:
        with mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
            if status != "FINISHED" and mlflow_client.has_outs_in_run_cache(
                self.root, self.client.get_run(run_id).data.tags
            ):
                status = "FINISHED"
            if peak_megabytes := _read_peak_memory_megabytes(log):
                self.client.log_metric(run_id, PEAK_MEMORY, peak_megabytes, self.at, step=0)
            _seal_and_end_run(self.client, self.root, run_id, status, self.at)
            if log.exists():
                self.client.log_artifact(run_id, str(log))

    def end_unfinished_runs(self) -> None:
        """End all runs of this flow that have not ended: the process that ran it was killed."""
        for rows in self._rows.values():
            with suppress(PlanError):
                rows.finish()
        with mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
            _end_stale_runs(self.client, self._experiment, self.root, at=self.at)

    def find(self, stage: str, entry: Entry) -> str | None:
        """The run that made a stage's current outs, for a stage that did not run now."""
        with mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
            return mlflow_client.find_or_adopt_maker_run(self.root, stage, entry)

    def close(self, results: Iterable[StageResult], complete: bool = True, name_stages: bool = True) -> None:
        """Record in the parent run how each stage ended and which run made its output; without `name_stages` only how
        it all ended.

        `complete` is False where the flow was stopped before its end. While stages wait for people it has not ended
        either: such a run is KILLED too, and its tag `posttrain.waiting` says for what.
        """
        tags = dict[str, str]()
        results = list(results)
        for result in results if name_stages else ():
            tags[PREFIX + mlflow_client.format_tag_name("state", result.stage)] = result.state
            if result.mlflow_run_id:
                tags[PREFIX + mlflow_client.format_tag_name("run", result.stage)] = result.mlflow_run_id
            if result.state == "paused" and result.awaits:
                tags[PREFIX + "waiting"] = f"{result.stage}: {result.reason}"
        states = {result.state for result in results}
        status = "FAILED" if states & {"failed", "skipped"} else "KILLED" if "paused" in states else "FINISHED"
        with mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
            mlflow_client.set_run_tags(self.client, self.parent, tags)
            self.client.set_terminated(self.parent, status if complete else "KILLED", self.at)


def _read_peak_memory_megabytes(log: Path) -> float:
    """The megabytes that the supervisor of a stage with this log has noted; 0 if it was killed."""
    try:
        return int(log.with_suffix(".memory").read_text()) / 1e6
    except (OSError, ValueError):
        return 0.0


def _seal_and_end_run(client: MlflowClient, root: Path, run_id: str, status: str, at: int | None = None) -> None:
    """End a run; the seal comes first, so that no finished run lacks it after a kill in between."""
    if status == "FINISHED":
        mlflow_client.seal_run(client, root, run_id)
    client.set_terminated(run_id, status, at)


def end_killed_runs(root: Path, flow: str) -> None:
    """End the runs that a killed process left as running.

    For when nothing else is to run; does nothing beside another run.
    """
    with suppress(PlanError), Coordinator(root), mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
        client = mlflow_client.open_mlflow_client_after_recording(root)
        _end_stale_runs(client, mlflow_client.get_or_create_experiment_id(client, root, flow), root)


def _end_stale_runs(
    client: MlflowClient, experiment: str, root: Path, at_work: Collection[str] = (), at: int | None = None
) -> None:
    """End the runs that a killed process left as running: FINISHED if the result is in dvc.lock or the run cache, else
    KILLED.

    Of an MLflow that is shared, those of this clone alone; never those `at_work`.
    """
    entries = read_lock_entries(root)
    ours = {PREFIX + "engine": "true", **mlflow_database.make_clone_tags(root)}
    running = " and ".join(["attributes.status = 'RUNNING'", *(f"tags.`{key}` = '{ours[key]}'" for key in ours)])
    for run in client.search_runs([experiment], running):
        if run.info.run_id in at_work:
            continue
        tags = run.data.tags
        entry = entries.get(tags.get(PREFIX + "stage", ""))
        recorded = entry is not None and {
            **mlflow_client.build_input_tags(tags[PREFIX + "stage"], entry),
            **mlflow_client.build_out_tags(entry),
        }
        finished = (recorded and recorded.items() <= tags.items()) or mlflow_client.has_outs_in_run_cache(root, tags)
        _seal_and_end_run(client, root, run.info.run_id, "FINISHED" if finished else "KILLED", at)
