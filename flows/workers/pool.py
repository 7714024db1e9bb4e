"""The coordinator's side of a work pool: it hands a stage to a worker, follows the attempt, and learns how it ended.

An attempt is lost when its worker says so, when its flow run has crashed, or when no report has come for LOST_SECONDS
while Prefect's server answers. A lost attempt is told that nobody waits for it, and its late result is never looked at.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from flows.engine import attempt_notes
from flows.engine.attempt_notes import AttemptNote
from flows.engine.dvc_command import Progress, StageFailed, StageWaiting, WorkerLost
from flows.engine.dvc_repository import PlanError
from flows.engine.dvc_stage import compute_run_cache_key
from flows.workers.job import LOST_SECONDS, Job, Status
from flows.workers.prefect_api import Api, Away

LOOK_SECONDS = 0.5
AWAY_SECONDS = 120.0  # that a server may be away when an attempt is to begin
# Between a worker's taking an attempt and its first report; a cluster that starts machines needs more.
START_SECONDS = 25.0
NO_WORKER_SECONDS = 30.0  # without a live worker in the pool: a waiting stage fails


class Pool:
    """A work pool on a Prefect server, as the coordinator of the repository at `root` uses it."""

    def __init__(self, api: Api, name: str, root: Path) -> None:
        self.api = api
        self.name = name
        self.root = root

    def run(
        self,
        job: Job,
        log: Path,
        tell: Progress,
        say: Callable[[str], None],
        stopped: Callable[[], bool],
        noted: str = "",
    ) -> Status:
        """Have a worker do the job; the last status of an attempt that succeeded.

        The note of an attempt that succeeded stays: the caller forgets it when it has what the attempt made. It has the
        stage's name, or `noted` where several attempts at one stage are under way. `say` is given a line for a person
        whenever what is waited for changes. StageFailed if the stage failed or `stopped`, StageWaiting if it waits for
        people, WorkerLost if the attempt may be made again.
        """
        key = compute_run_cache_key(job.entry)
        name = noted or job.stage
        run = self._resume_or_cancel_attempt(name, key)
        note = AttemptNote(name, job.attempt, job.transport == "shared", key, self.api.url)
        try:
            if run is None:
                attempt_notes.write_attempt_note(self.root, note)
                run = self._submit_attempt(job, say, stopped)
                attempt_notes.write_attempt_note(self.root, replace(note, run=run))
            return _Following(self, run, job, log, tell, say, stopped).follow_until_end()
        except BaseException:
            attempt_notes.delete_attempt_note(self.root, name)
            if run is not None:
                cancel_attempt(self.api, run)
            raise

    def _submit_attempt(self, job: Job, say: Callable[[str], None], stopped: Callable[[], bool]) -> str:
        """Schedule the attempt; a server that is busy or restarts is asked again."""
        deadline = time.monotonic() + AWAY_SECONDS
        while True:
            try:
                return self.api.submit(self.name, job.stage, {"job": job.json()}, job.attempt)
            except Away as error:
                if stopped():
                    raise StageFailed("stopped") from None
                if time.monotonic() > deadline:
                    raise PlanError(f"Prefect's server cannot be reached: {error}") from None
                say(f"Prefect's server is away: {error}")
                time.sleep(LOOK_SECONDS)

    def _resume_or_cancel_attempt(self, name: str, key: str) -> str | None:
        """The flow run of an attempt that a killed coordinator waited for, if it makes the same and goes on; others are
        given up.
        """
        note = attempt_notes.read_attempt_note(self.root, name)
        if note is None or note.url != self.api.url or not note.run:
            return None
        with raise_away_as_plan_error():
            run = self.api.flow_run(note.run)
        if run is None or run.state in ("CRASHED", "CANCELLED", "CANCELLING", "FAILED"):
            return None
        if note.key == key and not note.shared:
            return note.run
        cancel_attempt(self.api, note.run)
        return None


class _Following:
    """What is known of an attempt that runs elsewhere."""

    def __init__(
        self,
        pool: Pool,
        run: str,
        job: Job,
        log: Path,
        tell: Progress,
        say: Callable[[str], None],
        stopped: Callable[[], bool],
    ) -> None:
        self.pool = pool
        self.api = pool.api
        self.run = run
        self.job = job
        self.tell = tell
        self._say = say
        self.stopped = stopped
        self.status = Status()
        self.reported_step = (0, 0)
        self.phase = ""
        self._said = ""
        self.copy = None if job.transport == "shared" else log
        self.log_lines = 0
        now = time.monotonic()
        self.heard = self.worker_seen = now

    def follow_until_end(self) -> Status:
        """Look at the attempt until it has ended."""
        while True:
            if self.stopped():
                raise StageFailed("stopped")
            try:
                if self._poll_attempt():
                    return self.status
            except Away as error:
                self.say(f"Prefect's server is away: {error}")
                self.heard = self.worker_seen = time.monotonic()  # nothing is known of the worker meanwhile
            time.sleep(LOOK_SECONDS)

    def say(self, line: str) -> None:
        """Pass on a line once."""
        if line != self._said:
            self._said = line
            self._say(line)

    def _poll_attempt(self) -> bool:
        """Read the newest report; whether the attempt has ended well."""
        report = self.api.status(self.run)
        run = self.api.flow_run(self.run)
        now = time.monotonic()
        if report and report.get("beat") != self.status.beat:
            self.status = Status.of(report)
            self.heard = now
            self._append_new_log_lines()
            self._show_progress()
        if self.status.ended:
            self._raise_on_failure()
            return True
        if run is not None and run.state == "CANCELLED" and (last := Status.of(self.api.status(self.run))).ended:
            self.status = last  # it ended between the two questions
            self._raise_on_failure()
        if run is None or run.state in ("CRASHED", "CANCELLED", "CANCELLING"):
            raise WorkerLost(
                f"the attempt of worker {self._get_worker_name()} was {run.state.lower() if run else 'deleted'}"
            )
        if not self.status.beat and run.state == "SCHEDULED":
            self.heard = now
            self._check_worker_seen_recently(now)
        elif not self.status.beat:
            if now - self.heard > get_start_timeout():
                raise WorkerLost(f"the worker of pool {self.pool.name} that took it has not begun")
        elif now - self.heard > LOST_SECONDS:
            raise WorkerLost(f"worker {self._get_worker_name()} has not reported for {now - self.heard:.0f} s")
        return False

    def _raise_on_failure(self) -> None:
        self._append_new_log_lines()
        if self.status.lost:
            raise WorkerLost(f"worker {self._get_worker_name()}: {self.status.lost}")
        if self.status.failure:
            raise StageFailed(self.status.failure)
        if self.status.waiting:
            raise StageWaiting(self.status.waiting)

    def _get_worker_name(self) -> str:
        return self.status.worker or self.status.host or "(none yet)"

    def _check_worker_seen_recently(self, now: float) -> None:
        online = any(worker.online for worker in self.api.workers(self.pool.name) or ())
        held = self.api.held(self.pool.name) if online else ""
        self.say(f"waits: {held}" if held else f"waits for a worker of pool {self.pool.name}")
        if online:
            self.worker_seen = now
        elif now - self.worker_seen > NO_WORKER_SECONDS:
            raise StageFailed(format_no_worker_message(self.pool.name))

    def _show_progress(self) -> None:
        status = self.status
        # two reports long
        lasting = status.phase if status.phase == self.phase else ""
        self.phase = status.phase
        self.say(f"on {self._get_worker_name()}" + (f": {lasting}" if lasting else ""))
        if (status.step, status.total) != self.reported_step and status.total:
            self.reported_step = status.step, status.total
            self.tell(status.step, status.total, status.seconds, status.measure)

    def _append_new_log_lines(self) -> None:
        """Append the log's new lines to the local file, where the worker does not write it itself."""
        if self.copy is not None:
            lines = self.api.log(self.run, self.log_lines)
            with self.copy.open("a") as file:
                file.writelines(f"{line}\n" for line in lines)
            self.log_lines += len(lines)


def get_start_timeout() -> float:
    """How long a worker may take to begin: POSTTRAIN_START_SECONDS, else START_SECONDS."""
    text = os.environ.get("POSTTRAIN_START_SECONDS", "")
    return float(text) if text.replace(".", "", 1).isdigit() else START_SECONDS


def cancel_attempt(api: Api, run: str) -> None:
    """Tell an attempt that nobody waits for it, as far as the server can be reached."""
    with suppress(Away, PlanError):
        api.set_state(run, "CANCELLED", "the coordinator does not wait for it any more")


def format_no_worker_message(pool: str) -> str:
    """The line for a pool without a live worker."""
    return f"pool {pool} has no live worker; start one with `posttrain worker --pool {pool}`, or run without pools"


@contextmanager
def raise_away_as_plan_error() -> Iterator[None]:
    """Turn Away into a PlanError."""
    try:
        yield
    except Away as error:
        raise PlanError(f"Prefect's server cannot be reached: {error}") from None
