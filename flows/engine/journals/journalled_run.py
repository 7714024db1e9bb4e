"""Records a run in a journal: nothing of MLflow is imported, and nobody waits for it."""

import base64
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from threading import Timer
from time import monotonic, sleep, time_ns
from typing import Any
from uuid import uuid4

from flows.engine import mlflow_client, mlflow_run_lookup
from flows.engine.dvc_lock import Entry, join_out_hashes
from flows.engine.dvc_repository import PlanError
from flows.engine.dvc_stage import compute_run_cache_key
from flows.engine.journals import journal, replay_process
from flows.engine.journals.journal import Journal
from flows.engine.stage_types import StageResult
from tasks.common import mlflow_database, run_environment, source_code
from tasks.common.source_code import CodeState

# seconds from the beginning of a run to that of the process that records it: short runs have the machine for themselves
LATER = 3.0
LOOK_SECONDS = 0.05
LONGEST = 60.0  # seconds until there is a database
OURS = " -m tasks."  # a stage of this installation, which needs no run in MLflow while it runs


class JournalledRun:
    """A `Recorder` of one run of a flow with MLflow's records in mlruns/. PlanError where MLflow's cannot be used."""

    def __init__(self, root: Path, flow: str, source: CodeState | None = None) -> None:
        """`source` is the state of the code that stages run with, where that is not the workspace's of the moment."""
        self.root = root.absolute()
        self.parent = uuid4().hex
        self._flow = flow
        self._given = source
        self._logs = dict[str, Path]()
        with mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
            mlflow_database.prepare_database(self.root, make=False)
        self._source = source or source_code.read_code_state(self.root)
        tags = run_environment.collect_run_tags()
        self._products = {run_environment.PRODUCTS: tags[run_environment.TAG + "products"]}
        self._made: dict[tuple[str, str], str] = {}  # run-cache key and hashes of the outs -> run
        self._journal = Journal(
            self.root,
            "begin",
            run=self.parent,
            flow=flow,
            source=encode_code_state(self._source),
            environment=tags,
        )
        self._later = Timer(LATER, self._start_recorder_process)
        self._later.daemon = True
        self._later.start()

    def _start_recorder_process(self) -> None:
        """Have the process at work that records it."""
        self._later.cancel()
        with suppress(OSError):  # no room for another process: the next command that reads the records starts it
            replay_process.start_recorder_unless_running(self.root)

    def start(self, stage: str, entry: Entry, reason: str) -> str:
        """The id of the run of a stage that is about to be executed; `entry` is its future entry of dvc.lock.

        A command that may be anyone's is held until it can find its run in MLflow.
        """
        source = self._given or source_code.read_code_state(self.root)
        run_id = uuid4().hex
        source_event = None if source == self._source else encode_code_state(source)
        self._journal.write("start", run=run_id, stage=stage, entry=entry, reason=reason, source=source_event)
        if OURS not in str(entry["cmd"]):
            self._create_run_in_mlflow(run_id, stage)
        return run_id

    def _create_run_in_mlflow(self, run_id: str, stage: str) -> None:
        with mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
            if mlflow_database.insert_run(
                self.root, self._flow, run_id, stage, run_environment.get_user_name(), time_ns() // 1_000_000
            ):
                return
        self._start_recorder_process()
        folder = self._journal.folder
        latest = monotonic() + LONGEST
        while not self._is_run_in_mlflow(run_id):  # the database is being made
            if (folder / journal.FAILED).exists() or not folder.exists() or monotonic() > latest:
                raise PlanError(f"{replay_process.LOG}: the run could not be recorded")
            sleep(LOOK_SECONDS)

    def _is_run_in_mlflow(self, run_id: str) -> bool:
        with mlflow_run_lookup.open_records_reader(self.root, settled=False) as records:
            return records is not None and records.head(run_id) is not None

    def variables(self, run_id: str, log: Path) -> dict[str, str]:
        """What a command finds its run by, the file for what it records, and the products that the run is recorded
        with.
        """
        self._logs[run_id] = log
        file = self._get_kept_file_path(run_id, log, ".records")
        with journal.convert_disk_errors_to_plan_error():
            for ending in (".log", ".memory", ".records"):  # those of an attempt before may be kept under the same file
                log.with_suffix(ending).unlink(missing_ok=True)
            file.parent.mkdir()
            file.touch()
        self._journal.write("follow", run=run_id, log=str(log))
        return {
            # for a command that knows MLflow; the stages here leave what they record in the file
            "MLFLOW_RUN_ID": run_id,
            "MLFLOW_TRACKING_URI": mlflow_database.get_tracking_address(self.root),
            "POSTTRAIN_RECORDS": str(file),
            **self._products,
        }

    def _get_kept_file_path(self, run_id: str, log: Path, ending: str) -> Path:
        """Where the journal keeps a file of a run."""
        return self._journal.folder / run_id / log.with_suffix(ending).name

    def record_worker_environment(self, run_id: str, facts: Mapping[str, str]) -> None:
        """Note the environment of the worker that made the run's outs, in place of this process's own."""
        self._journal.write("made_by", run=run_id, facts=dict(facts))

    def waits(self, run_id: str, line: str) -> None:
        """Note that a stage waits for people, so that its run, which is KILLED, is not taken for one that was
        stopped.
        """
        self._journal.write("waits", run=run_id, line=line)

    def made(self, run_id: str, stage: str, entry: Entry) -> None:
        """Note what the run made. This comes before DVC's records, so that a kill in between leaves no gap."""
        self._made[compute_run_cache_key(entry), join_out_hashes(entry)] = run_id
        self._move_worker_records(run_id)
        self._journal.write("made", run=run_id, stage=stage, entry=entry)
        self._journal.sync()

    def _move_worker_records(self, run_id: str) -> None:
        """Take what a worker recorded, which comes to where its log is."""
        log = self._logs.get(run_id)
        if log is not None and log.with_suffix(".records").is_file():
            with journal.convert_disk_errors_to_plan_error():
                log.with_suffix(".records").replace(self._get_kept_file_path(run_id, log, ".records"))

    def end(self, run_id: str, status: str, log: Path) -> None:
        """Keep the log of the stage and the memory that it took, and end its run as FINISHED, FAILED or KILLED."""
        try:
            self._move_worker_records(run_id)
            with journal.convert_disk_errors_to_plan_error():
                for ending in (".log", ".memory"):
                    self._get_kept_file_path(run_id, log, ending).parent.mkdir(exist_ok=True)
                    journal.link_or_copy_file(log.with_suffix(ending), self._get_kept_file_path(run_id, log, ending))
        finally:
            self._journal.write("end_run", run=run_id, status=status, log=log.name)

    def find(self, stage: str, entry: Entry) -> str | None:
        """The run that made a stage's current outs, for a stage that did not run now."""
        if run_id := self._made.get((compute_run_cache_key(entry), join_out_hashes(entry))):
            return run_id
        with mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
            return mlflow_client.find_or_adopt_maker_run(self.root, stage, entry)

    def close(self, results: Iterable[StageResult], complete: bool = True, name_stages: bool = True) -> None:
        """End the pipeline's run, and have all of it recorded."""
        serialized = [encode_stage_result(result) for result in results]
        try:
            self._journal.write("close", results=serialized, complete=complete, name_stages=name_stages)
            self._journal.close()
        finally:
            self.leave()
            self._start_recorder_process()

    def leave(self) -> None:
        """Write no more; a run that was not closed counts as one that was killed."""
        self._later.cancel()
        self._journal.leave()


def encode_code_state(source: CodeState) -> dict[str, str | None]:
    """The state of the code for an event."""
    patch = None if source.patch is None else base64.b64encode(source.patch).decode()
    return {"commit": source.commit, "dirty": source.dirty, "patch": patch, "note": source.note}


def decode_code_state(event: Mapping[str, Any]) -> CodeState:
    """The state of the code that an event has."""
    patch = event["patch"]
    content = None if patch is None else base64.b64decode(patch)
    return CodeState(
        event["commit"], event["dirty"], content, event.get("note") or ""
    )  # an earlier version had no note


def encode_stage_result(result: StageResult) -> dict[str, Any]:
    """A result for an event."""
    return {**asdict(result), "log": None if result.log is None else str(result.log)}


def decode_stage_result(event: Mapping[str, Any]) -> StageResult:
    """The result that an event has."""
    log = event["log"]
    awaits = tuple(event["awaits"])
    return StageResult(**{**event, "log": None if log is None else Path(log), "awaits": awaits})
