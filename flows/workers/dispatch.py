"""Which stages of a run go to which pool, and what their workers are given: all that the coordinator needs of
workers.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flows.engine import attempt_notes
from flows.engine.dvc_command import Progress, WorkerLost
from flows.engine.dvc_lock import Entry, get_data_hashes
from flows.engine.dvc_repository import PlanError
from flows.engine.previous_outputs import delete_path
from flows.engine.stage_types import PlannedStage
from flows.lineage import cache_objects
from flows.workers import dvc_transfer, pool, prefect_servers
from flows.workers.in_copy import pack_patch
from flows.workers.job import Job, Status, Transport
from flows.workers.pool import Pool, raise_away_as_plan_error
from flows.workers.prefect_api import Api
from tasks.common import mlflow_address, source_code
from tasks.common.source_code import NO_COMMIT

LARGEST_PATCH = 300_000  # letters of a packed patch; Prefect takes parameters of 512 KiB
OURS = ("params.yaml", "dvc.lock")  # their content travels with the job
NAMED = 3  # files in a message


@dataclass(frozen=True)
class Dispatch:
    """The pools of one run: name -> pool and how its workers get at the files.

    `commit` and `patch` are for those with clones.
    """

    root: Path
    pools: dict[str, tuple[Pool, Transport]]
    commit: str = ""
    patch: str = ""

    def close(self) -> None:
        """Close the connections to the server."""
        for each, _ in self.pools.values():
            each.api.close()

    def job(self, stage: PlannedStage, entry: Entry) -> Job:
        """What the stage's worker is asked to do; `entry` is the stage's future entry of dvc.lock."""
        _, transport = self.pools[stage.pool]
        bare = {**entry, "outs": [{"path": out["path"]} for out in entry["outs"]]}
        job = Job(
            stage.name,
            secrets.token_hex(8),
            transport,
            mlflow_address.load_or_create_clone_id(self.root),
            bare,
            stage.gpu,
            stage.launcher,
        )
        return job if transport == "shared" else replace(job, commit=self.commit, patch=self.patch)

    def run(
        self,
        stage: PlannedStage,
        entry: Entry,
        log: Path,
        tell: Progress,
        say: Callable[[str], None],
        stopped: Callable[[], bool],
    ) -> Mapping[str, str]:
        """Have a worker run the stage, and lay out what it made, its log and its records; see Coordinator's
        Elsewhere.
        """
        where, transport = self.pools[stage.pool]
        job = self.job(stage, entry)
        if transport == "clone":
            self._retry_transfer(lambda: self._push_stage_data(entry), say, stopped)
        status = where.run(job, log, tell, say, stopped)
        try:
            if transport == "clone":
                self._retry_transfer(lambda: self._fetch_and_lay_out_outputs(status, log), say, stopped)
        finally:
            attempt_notes.delete_attempt_note(
                self.root, stage.name
            )  # after a kill before this, the next run takes what the attempt made
        return _build_worker_facts(status)

    def make(
        self,
        stage: PlannedStage,
        noted: str,
        entry: Entry,
        log: Path,
        tell: Progress,
        say: Callable[[str], None],
        stopped: Callable[[], bool],
    ) -> tuple[Sequence[Mapping[str, Any]], Mapping[str, str]]:
        """Have a worker run the stage in a copy, and bring what it made to the cache, and its log and records beside
        `log`.

        Returns the outs with their hashes and the facts of the worker's environment; nothing is laid out in the
        workspace. `noted` tells attempts at one stage apart.
        """
        where, _ = self.pools[stage.pool]
        self._retry_transfer(lambda: self._push_stage_data(entry), say, stopped)
        status = where.run(self.job(stage, entry), log, tell, say, stopped, noted)
        try:
            self._retry_transfer(lambda: self._fetch_and_lay_out_outputs(replace(status, outs=[]), log), say, stopped)
            hashes = [str(out["md5"]) for out in status.outs]
            self._retry_transfer(lambda: dvc_transfer.fetch_objects(self.root, hashes), say, stopped)
        finally:
            attempt_notes.delete_attempt_note(self.root, noted)
        return status.outs, _build_worker_facts(status)

    def _push_stage_data(self, entry: Entry) -> None:
        """Push the stage's data; what stands in no cache, such as raw data in git, is put there first."""
        for path, md5 in get_data_hashes(entry).items():
            if not cache_objects.is_cache_object_complete(self.root, md5):
                actual_md5 = dvc_transfer.store_in_cache(self.root, self.root / path)["md5"]
                if actual_md5 != md5:
                    raise PlanError(f"{path}: it changed while the run was under way; run it again")
        dvc_transfer.push_objects(self.root, get_data_hashes(entry).values())

    def _fetch_and_lay_out_outputs(self, status: Status, log: Path) -> None:
        hashes = [str(out["md5"]) for out in status.outs]
        dvc_transfer.fetch_objects(self.root, [*hashes, *status.files.values()])
        outs = {self.root / out["path"]: str(out["md5"]) for out in status.outs}
        for path, md5 in {
            **outs,
            **{log.with_suffix(f".{name}"): md5 for name, md5 in status.files.items()},
        }.items():
            delete_path(path)
            cache_objects.copy_from_cache(self.root, md5, path)

    def _retry_transfer(
        self, what: Callable[[], None], say: Callable[[str], None], stopped: Callable[[], bool]
    ) -> None:
        def patient(line: str) -> None:
            if stopped():
                raise PlanError("stopped")
            say(line)

        try:
            dvc_transfer.retry_transfer(what, patient)
        except dvc_transfer.DamagedError as error:
            raise WorkerLost(str(error)) from None
        except dvc_transfer.TransferError as error:
            raise PlanError(str(error)) from None


def _build_worker_facts(status: Status) -> dict[str, str]:
    worker = {"worker": status.worker, "host": status.host, "devices": " ".join(status.devices)}
    return {**worker, **status.environment}


def prepare_dispatch(
    root: Path, planned: Iterable[PlannedStage], with_patch: bool, copies: bool = False
) -> Dispatch | None:
    """The pools of the stages that may run; None if all run here. PlanError of one line if a worker, a commit or a
    remote lacks.

    With `copies` workers in this very checkout run stages in copies of the commit too, as those with clones of their
    own.
    """
    names = dict.fromkeys(stage.pool for stage in planned if stage.reason and stage.pool)
    if not names:
        return None
    api = prefect_servers.connect_to_prefect(root)
    try:
        with raise_away_as_plan_error():
            pools = {name: (Pool(api, name, root), _choose_transport(api, root, name)) for name in names}
        if copies:
            pools = {name: (each, "clone") for name, (each, _) in pools.items()}
        if all(transport == "shared" for _, transport in pools.values()):
            return Dispatch(root, pools)
        if not dvc_transfer.has_dvc_remote(root):
            raise PlanError(
                "the workers have clones of their own, so DVC needs a remote: `dvc remote add --default NAME PLACE`"
            )
        commit, patch = _get_commit_and_patch(root, with_patch)
        dvc_transfer.create_remote_folder(root)
        return Dispatch(root, pools, commit, patch)
    except PlanError:
        api.close()
        raise


def _choose_transport(api: Api, root: Path, name: str) -> Transport:
    """Shared if every live worker of the pool is in this very checkout."""
    workers = api.workers(name)
    live = [worker for worker in workers or () if worker.online]
    if not live:
        raise PlanError(pool.format_no_worker_message(name))
    clone_id = mlflow_address.load_or_create_clone_id(root)
    facts = {
        announcement.get("name"): announcement
        for announcement in api.list_announced_workers().values()
        if announcement.get("pool") == name
    }
    checkouts = {facts.get(worker.name, {}).get("checkout") for worker in live}
    return "shared" if checkouts == {clone_id} else "clone"


def _get_commit_and_patch(root: Path, with_patch: bool) -> tuple[str, str]:
    """The commit that workers check out, and the tree's difference to it."""
    source = source_code.read_code_state(root)
    if source.commit in NO_COMMIT:
        why = source.note or "there is none here"
        raise PlanError(f"the workers have clones of their own, so they need a git commit to check out; {why}")
    files = [] if source.dirty in ("no", "unknown") else [name for name in source.dirty.split() if name not in OURS]
    if not files:
        return source.commit, ""
    if not with_patch:
        shown = ", ".join(files[:NAMED]) + (f" and {len(files) - NAMED} more" if len(files) > NAMED else "")
        raise PlanError(
            f"{shown}: not committed, and workers check out the commit; commit first, or run with --with-patch"
        )
    patch = pack_patch(source.patch or b"")
    if len(patch) > LARGEST_PATCH:
        raise PlanError(
            f"--with-patch: the difference to the commit is too large ({len(patch)} letters packed); commit first"
        )
    return source.commit, patch
