"""`python -m flows.workers.attempt`: one attempt at a stage, on the worker's machine. Prefect's process worker starts
it.

It runs the stage's command under the supervisor and reports. It owns nothing of DVC's state: in a shared checkout the
coordinator records the outs where they lie; otherwise outs and run-cache entry go to the DVC remote, and the
coordinator takes them from there.
"""

import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Protocol

from flows.engine.dvc_command import CommandRunner, StageFailed, StageWaiting
from flows.engine.dvc_repository import PlanError
from flows.engine.stage_types import Grant
from flows.machine import devices
from flows.machine.resources import Slots
from flows.workers.dvc_transfer import DamagedError, TransferError
from flows.workers.heartbeat import NOT_WANTED, Reporter
from flows.workers.job import Job, Status
from flows.workers.prefect_api import ENDED, Api, Away
from tasks.common import run_environment

ROOT = "POSTTRAIN_WORKER_ROOT"
NAME = "POSTTRAIN_WORKER_NAME"
WORKER = "POSTTRAIN_WORKER_PROCESS"
PATIENCE_SECONDS = 1800.0  # for a server that is away when the result is to be told
RETRY_SECONDS = 1.0
WAITING = "CANCELLED"  # the state of an attempt whose stage waits for people: it has neither failed nor made anything


class UnwantedError(Exception):
    """The attempt must end, though the stage did not fail."""


class AttemptSite(Protocol):
    """Where an attempt runs. `perform` does the work, and puts into the status what the coordinator needs of it."""

    def run_attempt(self) -> None: ...


class Attempt:
    """The attempt that the flow run `run` stands for, in the checkout or clone at `root`."""

    def __init__(self, api: Api, run: str, root: Path) -> None:
        self.api = api
        self.run = run
        self.root = root
        self.status = Status(host=socket.gethostname(), worker=os.environ.get(NAME, ""), pid=os.getpid())
        worker = os.environ.get(WORKER, "")
        self.reporter = Reporter(
            api, run, self.status, self.stop, parent=int(worker) if worker.isdigit() else os.getppid()
        )
        self.runner: CommandRunner | None = None
        self.stopped = ""  # why
        self._silent = False

    def stop(self, why: str, tell: bool) -> None:
        """Stop the command; `tell` the coordinator unless it has given the attempt up itself."""
        self.stopped = self.stopped or why
        self._silent = self._silent or not tell
        if self.runner is not None:
            self.runner.stop()

    def check(self) -> None:
        """Raise UnwantedError if the attempt must end."""
        if self.stopped:
            raise UnwantedError(self.stopped)

    def check_wanted(self) -> None:
        """Ask the coordinator's side, however long the server is away; UnwantedError if nobody waits for the attempt
        any more.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            self.check()
            try:
                if not self.reporter.wanted():
                    self.stop(NOT_WANTED, False)
                return self.check()
            except Away:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_SECONDS)

    def phase(self, text: str) -> None:
        """Say what is waited for or done, where that is not the stage's own work."""
        self.status.phase = text
        self.check()

    def tell(self, step: int, total: int, seconds: float, measure: str) -> None:
        """Note the progress of the command."""
        self.status.step = step
        self.status.total = total
        self.status.seconds = seconds
        self.status.measure = measure

    @contextmanager
    def hold_resource_grant(self, job: Job, environ: Mapping[str, str], *keep: int) -> Iterator[Grant]:
        """What the command gets: these variables and open files, its launcher or the devices that it waited for."""
        if job.launcher:
            yield Grant(environ, keep, tuple(shlex.split(job.launcher)))
            return
        slots = Slots(stopped=lambda: bool(self.stopped))
        if 0 < len(slots.gpus) < job.gpu:
            raise PlanError(f"{job.stage} asks for {job.gpu} GPUs, worker {self.status.worker} has {len(slots.gpus)}")
        holder = f"{job.stage} of {self.root} (pid {self.status.pid} on {self.status.host})"
        with slots.hold(0, job.gpu, holder=holder, tell=self.phase) as lease:
            self.phase("")
            self.status.devices = list(lease.names)
            device_variables = devices.build_device_environment(lease.names) if slots.gpus else {}
            yield Grant({**environ, **device_variables}, (*keep, *lease.files))

    def run_attempt(self) -> int:
        """Do the job and tell how it ended; the exit status."""
        job = self._claim_job()
        if job is None:
            return 0
        self.reporter.start()
        try:
            self._choose_attempt_site(job).run_attempt()
        except UnwantedError as error:
            self.status.lost = str(error)
        except StageWaiting as error:
            self.status.waiting = str(error)
        except Exception as error:
            is_expected = isinstance(error, StageFailed | PlanError | devices.DeviceError | TransferError)
            line = ("" if is_expected else f"{type(error).__name__}: ") + " ".join(str(error).split())
            if isinstance(error, DamagedError):
                self.status.lost = line  # the coordinator sends it again before the next attempt
            elif self.stopped:
                self.status.lost = self.stopped
            else:
                self.status.failure = line
        self.reporter.stop()
        if self._silent:
            self._cancel_flow_run()
        else:
            self._send_final_report()
        return 0

    def _claim_job(self) -> Job | None:
        """The job, with its flow run in the state RUNNING; None if nobody waits for it any more."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                flow_run = self.api.flow_run(self.run)
                if flow_run is None or not self.reporter.wanted():
                    return None
                self.api.set_state(self.run, "RUNNING", force=True)
                if any(state in ENDED for state in self.api.states(self.run)):  # given up since it was asked
                    self._cancel_flow_run()
                    return None
                self.reporter.beat()
                return Job.of(flow_run.parameters["job"])
            except Away:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_SECONDS)

    def _choose_attempt_site(self, job: Job) -> AttemptSite:
        if job.transport == "shared":
            from flows.workers.in_checkout import InCheckout

            return InCheckout(self, job)
        from flows.workers.in_copy import InCopy

        return InCopy(self, job)

    def _cancel_flow_run(self) -> None:
        """End the flow run of an attempt that nobody waits for, so that it is not listed as running; its status stays
        as it is.
        """
        with suppress(Away, PlanError):
            run = self.api.flow_run(self.run)
            if run is not None and run.state not in ENDED:
                self.api.set_state(self.run, "CANCELLED", NOT_WANTED, force=True)

    def _send_final_report(self) -> None:
        """Send the last report, then the state, and be patient with a server that is away."""
        self.status.ended = True
        self.status.phase = ""
        status = self.status
        state = "CRASHED" if status.lost else "FAILED" if status.failure else WAITING if status.waiting else "COMPLETED"
        deadline = time.monotonic() + (5.0 if self.status.lost else PATIENCE_SECONDS)
        while time.monotonic() < deadline:
            with suppress(Away):
                if self.reporter.wanted():
                    self.reporter.beat()
                    self.api.set_state(self.run, state, status.failure or status.lost or status.waiting, force=True)
                return
            time.sleep(RETRY_SECONDS)


def main() -> int:
    """Do the attempt that the environment names."""
    run_environment.prepare_environment()
    root = Path(os.environ.get(ROOT, ".")).absolute()
    attempt = Attempt(Api(os.environ["PREFECT_API_URL"]), os.environ["PREFECT__FLOW_RUN_ID"], root)
    stop = partial(
        Thread, target=attempt.stop, args=("its worker was stopped", True)
    )  # it takes locks that are held here
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop().start())
    try:
        return attempt.run_attempt()
    finally:
        attempt.api.close()


if __name__ == "__main__":
    sys.exit(main())
