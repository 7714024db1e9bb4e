"""An attempt in the coordinator's own checkout, which worker and coordinator see through a shared disk."""

import os
from typing import TYPE_CHECKING

from flows.engine import attempt_notes
from flows.engine.dvc_command import CommandRunner
from flows.engine.dvc_lock import get_entry_hashes
from flows.engine.dvc_repository import PlanError
from flows.engine.previous_outputs import delete_path
from flows.machine import stage_lock
from flows.workers.heartbeat import NOT_WANTED
from flows.workers.job import Job
from tasks.common import mlflow_address

if TYPE_CHECKING:
    from flows.workers.attempt import Attempt

CUT = ("MLFLOW_", "PREFECT_", "POSTTRAIN_WORKER_")  # what the command must not see of the worker's environment


class InCheckout:
    """Runs the command where the coordinator would; its log and progress are the coordinator's own files."""

    def __init__(self, attempt: "Attempt", job: Job) -> None:
        self.attempt = attempt
        self.job = job
        self.root = attempt.root
        if mlflow_address.load_or_create_clone_id(self.root) != job.checkout:
            raise PlanError(f"this worker is in {self.root}, which is not the checkout that the run is of")

    def run_attempt(self) -> None:
        """Clear what an earlier attempt left, and run the command."""
        job = self.job
        attempt = self.attempt
        attempt.reporter.still = self._is_current_attempt
        holder = f"worker {attempt.status.worker} on {attempt.status.host}, process {attempt.status.pid}"
        with stage_lock.hold_stage_lock(self.root, job.stage, holder, attempt.phase) as lock:
            if (
                not self._is_current_attempt()
            ):  # a coordinator that has the lock after this may change the outs as it likes
                attempt.stop(NOT_WANTED, False)
            attempt.phase("")
            self._remove_old_outs()
            runner = attempt.runner = CommandRunner(self.root)
            attempt.check()
            log = self.root / "mlruns/logs" / f"{job.stage}.log"
            environ = {name: value for name, value in os.environ.items() if not name.startswith(CUT)}
            environ |= {"DVC_ROOT": str(self.root), "POSTTRAIN_RECORDS": str(log.with_suffix(".records"))}
            attempt.reporter.log = log
            with attempt.hold_resource_grant(job, environ, lock) as grant:
                runner.call(job.stage, job.entry["cmd"], self.root, log, grant, attempt.tell)
            attempt.check()

    def _is_current_attempt(self) -> bool:
        note = attempt_notes.read_attempt_note(self.root, self.job.stage)
        return note is not None and note.attempt == self.job.attempt

    def _remove_old_outs(self) -> None:
        for out in get_entry_hashes(self.job.entry, "outs"):
            path = self.root / out
            delete_path(path)
            path.parent.mkdir(parents=True, exist_ok=True)
