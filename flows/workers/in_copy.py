"""An attempt in the worker's own clone: the coordinator's commit in a scratch copy, deps from the DVC remote, outs back
to it.

The outs are checked, put into the clone's cache, pushed, and read again in the remote. The run-cache entry goes last,
and only while the coordinator still waits for this attempt.
"""

import base64
import fcntl
import os
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from flows.engine.checker import Checker, iterate_declared_out_faults
from flows.engine.dvc_command import CommandRunner, StageFailed, StageWaiting
from flows.engine.dvc_lock import get_data_hashes, get_entry_hashes
from flows.engine.dvc_repository import PlanError
from flows.engine.previous_outputs import delete_path
from flows.lineage.execution_record import ExecutionRecord
from flows.lineage.reproduction import checkout, command, scratch_copy
from flows.workers import dvc_transfer
from flows.workers.job import Job
from flows.workers.prefect_api import Away
from tasks.common import run_environment

if TYPE_CHECKING:
    from flows.workers.attempt import Attempt

HOME = Path(".dvc/tmp/posttrain/copies")  # in the clone
CHECKPOINTS = Path("mlruns/checkpoints")  # of stages that were killed; they outlive a copy
LARGEST_PATCH = 64 * 2**20  # bytes


class InCopy:
    """Runs the command in a copy of the commit, with nothing of the coordinator's machine but what DVC's remote and git
    have.
    """

    def __init__(self, attempt: "Attempt", job: Job) -> None:
        self.attempt = attempt
        self.job = job
        self.root = attempt.root

    def run_attempt(self) -> None:
        """Lay out, run, check, push."""
        job = self.job
        attempt = self.attempt
        with open_scratch_folder(self.root / HOME, f"{job.stage}-") as (folder, lock):
            target = folder / "copy"
            target.mkdir()
            self._prepare_copy(target, folder / "patch")
            attempt.phase("")
            runner = attempt.runner = CommandRunner(target)
            attempt.check()
            log = target / command.LOG / f"{job.stage}.log"
            attempt.reporter.log = log
            environ = command.build_reproduction_environment(self._build_execution_record(None), target)
            environ["POSTTRAIN_RECORDS"] = str(log.with_suffix(".records"))
            try:
                with attempt.hold_resource_grant(job, environ, lock) as grant:
                    runner.call(job.stage, job.entry["cmd"], target, log, grant, attempt.tell)
                attempt.check()
                self._check_outs(target)
                self._push_results(target, log)
            except (StageFailed, StageWaiting):
                attempt.reporter.stop()
                with suppress(Away, PlanError):
                    attempt.reporter.beat()  # the log's last lines, before the log is gone
                raise
            finally:
                runner.stop()

    def _build_execution_record(self, patch: Path | None) -> ExecutionRecord:
        return ExecutionRecord(self.job.stage, self.job.entry, commit=self.job.commit, patch=patch)

    def _prepare_copy(self, target: Path, patch: Path) -> None:
        job = self.job
        attempt = self.attempt
        attempt.phase(f"fetches commit {job.commit[:8]}")
        if not checkout.has_commit(self.root, job.commit):
            subprocess.run(["git", "-C", str(self.root), "fetch", "--quiet", "--all"], capture_output=True, check=False)
        if not checkout.has_commit(self.root, job.commit):
            raise PlanError(f"commit {job.commit[:8]} is not in {self.root} on {attempt.status.host}; push it first")
        if job.patch:
            patch.write_bytes(unpack_patch(job.patch))
        attempt.phase("fetches what the stage reads")
        self._retry_transfer(
            lambda: dvc_transfer.fetch_objects(self.root, get_data_hashes(job.entry).values(), job.remote)
        )
        try:
            scratch_copy.make_scratch_copy(
                self.root, self._build_execution_record(patch if job.patch else None), target
            )
        except scratch_copy.CannotReproduceError as error:
            raise PlanError(str(error)) from None
        kept = self.root / CHECKPOINTS
        link = target / CHECKPOINTS
        kept.mkdir(parents=True, exist_ok=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(kept)

    def _check_outs(self, target: Path) -> None:
        made = [target / out for out in get_entry_hashes(self.job.entry, "outs")]
        checker = Checker(target)
        try:
            if problems := [*iterate_declared_out_faults(target, made)] or checker.problems(made):
                raise StageFailed(problems[0])
        finally:
            checker.stop()

    def _push_results(self, target: Path, log: Path) -> None:
        """Push the outs, the log and the records; then, if the attempt is still wanted, the entry of the run cache."""
        job = self.job
        status = self.attempt.status
        self.attempt.phase("sends what the stage made")
        outs = [
            {"path": out["path"], **dvc_transfer.store_in_cache(self.root, target / out["path"], target)}
            for out in job.entry["outs"]
        ]
        files = {"log": log, **{kind: log.with_suffix(f".{kind}") for kind in ("records", "memory")}}
        status.files = {
            name: dvc_transfer.store_in_cache(self.root, file, target)["md5"]
            for name, file in files.items()
            if file.exists()
        }
        entry = {**job.entry, "outs": outs}
        pushed = [*get_entry_hashes(entry, "outs").values(), *status.files.values()]
        self._retry_transfer(lambda: dvc_transfer.push_objects(self.root, pushed, job.remote))
        self.attempt.check()
        self.attempt.check_wanted()
        self._retry_transfer(lambda: dvc_transfer.push_run_cache_entry(self.root, entry, job.remote))
        status.outs = outs
        status.environment = run_environment.collect_environment_facts()

    def _retry_transfer(self, what: Callable[[], None]) -> None:
        dvc_transfer.retry_transfer(what, self.attempt.phase)


@contextmanager
def open_scratch_folder(home: Path, prefix: str) -> Iterator[tuple[Path, int]]:
    """A new folder in `home`, deleted at the end, and its open file with a lock, which the command must inherit.

    Folders that nobody holds were left by a kill; they are deleted first.
    """
    home.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        with _hold_folder_lock(home, fcntl.LOCK_EX):  # so that nobody deletes the new folder before it is locked
            delete_abandoned_folders(home)
            folder = Path(tempfile.mkdtemp(dir=home, prefix=prefix))
            file = stack.enter_context(_hold_folder_lock(folder, fcntl.LOCK_EX))
        stack.callback(delete_path, folder)
        yield folder, file


def delete_abandoned_folders(home: Path) -> None:
    """Delete the folders in `home` that no process holds; one that its owner deletes meanwhile is gone as well."""
    for left in [*home.iterdir()] if home.exists() else []:
        with suppress(BlockingIOError, FileNotFoundError), _hold_folder_lock(left, fcntl.LOCK_EX | fcntl.LOCK_NB):
            delete_path(left)


@contextmanager
def _hold_folder_lock(folder: Path, how: int) -> Iterator[int]:
    file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(file, how)
        yield file
    finally:
        os.close(file)


def pack_patch(patch: bytes) -> str:
    """The patch as text."""
    return base64.b64encode(zlib.compress(patch)).decode()


def unpack_patch(text: str) -> bytes:
    """The patch of a text, of at most LARGEST_PATCH bytes."""
    content = zlib.decompressobj()
    patch = content.decompress(base64.b64decode(text), LARGEST_PATCH)
    if content.unconsumed_tail:
        raise PlanError(f"the patch is larger than {LARGEST_PATCH} bytes")
    return patch
