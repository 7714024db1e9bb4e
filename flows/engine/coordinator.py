"""The only owner of DVC's state while a flow runs: it brings stages up to date, one by one or several at once.

A stage is up to date, restored from the run cache, or run. To run it is to start its command as a supervised child, to
validate its outs before they enter the cache, and to write its record atomically. A failure leaves everything as it
was.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, chdir, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from flows.engine import attempt_notes
from flows.engine.dvc_changes import find_stale_reason
from flows.engine.dvc_command import CommandRunner, Progress, StageFailed, StageWaiting, WorkerLost
from flows.engine.dvc_lock import Entry, get_data_hashes, get_entry_hashes, read_lock_entries
from flows.engine.dvc_repository import (
    PlanError,
    Repositories,
    convert_dvc_errors_to_plan_error,
    delete_killed_reservations,
)
from flows.engine.dvc_stage import COMMAND, DepChanged, StageRecords
from flows.engine.previous_outputs import recover_previous_outs
from flows.engine.stage_types import Event, Grant, PlannedStage, StageResult, Watcher
from flows.machine import stage_lock
from flows.machine.warm_start import WarmStarts

if TYPE_CHECKING:
    from flows.engine.journals.recorder_protocol import Recorder

ATTEMPTS = 3  # at a stage whose workers are lost
TURNS = 10  # of a stage whose raw data grows while it runs, as people's judgements do


class Elsewhere(Protocol):
    """Runs stages on workers."""

    def run(
        self,
        stage: PlannedStage,
        entry: Entry,
        log: Path,
        tell: Progress,
        say: Callable[[str], None],
        stopped: Callable[[], bool],
    ) -> Mapping[str, str]:
        """Have a worker run the stage, and leave its outs and its log where its command would here.

        Returns the facts of the worker's environment. StageFailed if the stage failed or was stopped, WorkerLost if it
        may be tried again.
        """
        ...


@dataclass(frozen=True)
class StageTurn:
    """A stage's turn: its result so far, who is told of it, what it was granted, and the stage as planned where a
    worker runs it.
    """

    result: StageResult
    watch: Watcher
    grant: Grant
    on_worker: PlannedStage | None
    log: Path

    def say(self, line: str) -> None:
        """Tell the watcher a line."""
        self.watch(Event(self.result.stage, "running", line, log=self.log))

    def tell(self, step: int, total: int, seconds: float, measure: str) -> None:
        """Tell the watcher how far the command is."""
        self.watch(Event(self.result.stage, "running", "", step, total, seconds, self.log, measure))


class Coordinator:
    """Runs stages of the repository at `root`. A context manager; a repository has only one at a time."""

    def __init__(
        self,
        root: Path,
        recorder: "Recorder | None" = None,
        workers: Elsewhere | None = None,
        warm: WarmStarts | None = None,
    ) -> None:
        self.root = root.absolute()
        self.recorder = recorder
        self.workers = workers
        self._home = self.root / ".dvc/tmp/posttrain"
        self._gate = threading.Lock()  # only one thread at a time uses DVC's records
        self._runner = CommandRunner(self.root, warm)
        self._repositories = Repositories(self.root)
        self._held = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as held:
            held.enter_context(hold_run_lock(self._home))
            held.enter_context(chdir(self.root))  # DVC expects dvc.yaml in the current folder
            held.callback(self._repositories.close)
            attempt_notes.stop_leftover_writers(self.root)
            recover_previous_outs(self._home / "previous", read_lock_entries(self.root))
            delete_killed_reservations(
                self.root, COMMAND
            )  # no other run is at work here, so any reservation was left by a kill
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._held.close()

    def stop(self) -> None:
        """Stop every command: running stages fail, waiting stages never start."""
        self._runner.stop()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._runner.stopped

    def log_of(self, name: str) -> Path:
        """The file that a stage's command writes its output to."""
        return self.root / "mlruns/logs" / f"{name}.log"

    def execute(
        self,
        name: str,
        watch: Watcher,
        grant: Grant | None = None,
        force: bool = False,
        on_worker: PlannedStage | None = None,
    ) -> StageResult:
        """Bring one stage up to date; its upstream must be so already. A failure is part of the result, never raised.

        Where it has to run, a worker of its pool runs the stage `on_worker`.
        """
        if self._runner.stopped:
            return StageResult(name, "skipped", "the run was stopped")
        started = time.monotonic()
        result = StageResult(name, "failed")
        try:
            with convert_dvc_errors_to_plan_error():
                self._execute_with_dep_retries(
                    StageTurn(result, watch, grant or Grant(), on_worker, self.log_of(name)), force
                )
        except StageWaiting as waiting:
            result.state = "paused"
            result.reason = str(waiting)
        except Exception as error:
            expected_error = isinstance(error, StageFailed | DepChanged | PlanError)
            result.state = "failed"
            result.reason = ("" if expected_error else f"{type(error).__name__}: ") + " ".join(str(error).split())
            if not self.root.exists():
                result.reason = (
                    f"{self.root} is gone: it was renamed or deleted; run it again where the repository is now"
                )
        result.seconds = time.monotonic() - started
        return result

    def describe(self, name: str) -> StageResult:
        """The result of a stage that is up to date by the plan, from the records alone."""
        entry = read_lock_entries(self.root)[name]
        result = StageResult(name, "up-to-date", outs=get_entry_hashes(entry, "outs"))
        self._set_maker_run_id(result, entry)
        return result

    def close_record(self, results: Sequence[StageResult], complete: bool) -> None:
        """End the flow's own run in MLflow."""
        if self.recorder is not None:
            self.recorder.close(results, complete)

    def _set_maker_run_id(self, result: StageResult, entry: Entry) -> None:
        """Name the run that made the outs of a stage that did not run now."""
        if self.recorder is not None:
            with capture_recording_failure(result):
                result.mlflow_run_id = self.recorder.find(result.stage, entry)

    def _execute_with_dep_retries(self, turn: StageTurn, force: bool) -> None:
        """Execute the stage, and anew while raw data changes under it: people go on judging while it reads what they
        have judged.
        """
        for left in reversed(range(TURNS)):
            try:
                return self._restore_or_run(turn, force)
            except DepChanged as changed:
                if not left or not changed.path.startswith("data/raw/") or self._runner.stopped:
                    raise
                turn.say(f"{changed.path} changed while it ran; runs again")

    def _restore_or_run(self, turn: StageTurn, force: bool) -> None:
        result = turn.result
        with (
            self._repositories.borrow_repository() as repo,
            closing(
                StageRecords(
                    repo,
                    result.stage,
                    self._gate,
                    self._home / "previous",
                    partial(self._report_waiting_or_raise, turn),
                )
            ) as records,
        ):
            with records.locked():
                reason = "forced" if force else find_stale_reason(records.stage)
                result.reason = reason or ""
                run = False
                if reason is None:
                    result.state = "up-to-date"
                elif not force and records.restore():
                    result.state = "restored"
                elif records.stage.frozen:
                    thaw = f"`dvc pull` may bring them, or `dvc unfreeze {result.stage}` lets it run"
                    raise StageFailed(f"it is frozen, and DVC's cache does not have its outs; {thaw}")
                else:
                    records.move_outs_aside_and_reserve_paths()
                    run = True
            if run:
                result.awaits = tuple(get_data_hashes(records.entry()))
                self._run_with_worker_retries(records, turn)
                result.state = "ran"
            else:
                self._set_maker_run_id(result, records.entry())
            result.outs = get_entry_hashes(records.entry(), "outs")

    def _run_with_worker_retries(self, records: StageRecords, turn: StageTurn) -> None:
        """Run the command, validate its outs and record them; on any failure put the previous outs back."""
        turn.result.log = turn.log
        left = ATTEMPTS

        def await_end(failed: Callable[[], bool]) -> None:
            attempt_notes.wait_for_stage_writer(self.root, turn.result.stage, turn.say, failed)

        try:
            while True:
                left -= 1
                try:
                    return self._run_attempt_and_record(records, turn)
                except WorkerLost as lost:
                    if not left:
                        raise StageFailed(f"{lost}; it was tried {ATTEMPTS} times") from None
                    turn.say(f"{lost}; tries again")
                    await_end(lambda: self._runner.stopped)
        except BaseException as error:
            try:
                await_end(lambda: True)
            except attempt_notes.StillWritingError as still:
                raise StageFailed(f"{error}; {still}") from None
            records.undo()
            raise

    def _run_attempt_and_record(self, records: StageRecords, turn: StageTurn) -> None:
        """Run the command once, here or on a worker, and record its outs; one run in MLflow."""
        result = turn.result
        grant = turn.grant
        log = turn.log
        waiting = partial(self._report_waiting_or_raise, turn)
        with self._open_mlflow_run(records, result) as variables:
            turn.say(result.reason)
            if turn.on_worker is None:
                with stage_lock.hold_stage_lock(
                    self.root, result.stage, f"posttrain run, process {os.getpid()}", waiting
                ) as lock:
                    command_grant = replace(grant, environ={**grant.environ, **variables}, keep=(*grant.keep, lock))
                    self._runner.run(records.stage, log, command_grant, turn.tell)
            else:
                assert self.workers is not None
                facts = self.workers.run(
                    turn.on_worker, records.entry(), log, turn.tell, turn.say, lambda: self._runner.stopped
                )
                self._runner.check(records.stage, log)
                if self.recorder is not None and result.mlflow_run_id is not None:
                    with capture_recording_failure(result):
                        self.recorder.record_worker_environment(result.mlflow_run_id, facts)
            records.save_outs()
            if self.recorder is not None and result.mlflow_run_id is not None:
                with capture_recording_failure(result):
                    self.recorder.made(result.mlflow_run_id, result.stage, records.entry())
            records.check_deps()
            records.keep()  # so that nothing is lost where the lock does not become free
            with records.locked():
                records.check_deps()
                records.record()

    def _report_waiting_or_raise(self, turn: StageTurn, line: str) -> None:
        """Tell what the stage waits for; StageFailed once the run is stopped."""
        turn.say(line)
        if self._runner.stopped:
            raise StageFailed("stopped")

    @contextmanager
    def _open_mlflow_run(self, records: StageRecords, result: StageResult) -> Iterator[dict[str, str]]:
        """One MLflow run around one execution of a stage; yields the environment variables by which the command finds
        the run.
        """
        if self.recorder is None:
            yield {}
            return
        run_id = result.mlflow_run_id = self.recorder.start(result.stage, records.entry(), result.reason)
        status = "FAILED"
        try:
            yield self.recorder.variables(run_id, self.log_of(result.stage))
            status = "FINISHED"
        except WorkerLost:
            status = "KILLED"
            raise
        except StageWaiting as waiting:
            status = "KILLED"
            with capture_recording_failure(result):
                self.recorder.waits(run_id, str(waiting))
            raise
        finally:
            killed = status == "FAILED" and self._runner.stopped
            with capture_recording_failure(result):
                self.recorder.end(run_id, "KILLED" if killed else status, self.log_of(result.stage))


@contextmanager
def capture_recording_failure(result: StageResult) -> Iterator[None]:
    """Note a failure to write to MLflow; DVC's records alone decide how the stage ended."""
    try:
        yield
    except PlanError as error:
        result.unrecorded = result.unrecorded or str(error)


@contextmanager
def hold_run_lock(home: Path) -> Iterator[None]:
    """Keep other runs out of this repository; the lock ends with the process, even if that is killed."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "run.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PlanError("another `posttrain run` is at work in this repository; wait for it, or stop it") from None
        yield
