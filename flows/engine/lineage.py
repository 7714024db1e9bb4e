"""From an output, or the hash of any earlier one, back to raw data: output -> run -> the run's inputs -> their runs.

A stage that was restored or is up to date is found by its run-cache key and the hashes of its outs, so the chain does
not depend on the times of runs. Where it breaks, the link's note says so.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from flows.engine import dvc_lock, mlflow_runs, mlflow_store
from flows.engine.dvc_lock import Entry, read_entries
from flows.engine.dvc_repository import PlanError, plain_errors
from flows.engine.mlflow_runs import PREFIX, Run

MD5 = re.compile(r"[0-9a-f]{32}(\.dir)?")


@dataclass(frozen=True)
class Link:
    """One output and what it was made from. `note` is set where there is no run: for raw data, or where the chain breaks."""

    path: str
    hash: str
    stage: str | None = None
    run_id: str | None = None
    made_at: datetime | None = None
    commit: str | None = None
    dirty: str | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)  # path -> hash of each module that the stage imports
    inputs: tuple["Link", ...] = ()
    note: str = ""


def chain(root: Path, path_or_stage: str) -> Link:
    """The lineage of a stage's output, of a path in dvc.lock, or of an md5 that some run once made."""
    root = root.absolute()
    with plain_errors():
        entries = read_entries(root)
    if MD5.fullmatch(path_or_stage):
        return _Walk(root, entries).of_hash(path_or_stage)
    path = _out_of(root, path_or_stage, entries)
    walk = _Walk(root, entries)
    return walk.link(path, walk.made_now[path][1])


def _out_of(root: Path, target: str, entries: Mapping[str, Entry]) -> str:
    """The out that `target` names: a stage stands for its largest out, a path within an out for that out."""
    outs = {path: name for name, entry in entries.items() for path in dvc_lock.hashes(entry, "outs")}
    if target in entries:
        made = entries[target].get("outs")
        if not made:
            raise PlanError(f"dvc.lock: stage '{target}' has no outs")
        largest: str = max(made, key=lambda out: out.get("size", 0))["path"]
        return largest
    given = Path(target).absolute()
    if given.is_relative_to(root):
        path = PurePosixPath(given.relative_to(root).as_posix())
        for candidate in (path, *path.parents):
            if str(candidate) in outs:
                return str(candidate)
    raise PlanError(f"dvc.lock: '{target}' is neither a stage that has run, nor an out of one, nor an md5")


class _Walk:
    """One walk over the records, which looks up each output once."""

    def __init__(self, root: Path, entries: Mapping[str, Entry]) -> None:
        self.root = root
        self.seen: dict[tuple[str, str], Link] = {}
        self.made_now = {
            path: (name, md5) for name, entry in entries.items() for path, md5 in dvc_lock.hashes(entry, "outs").items()
        }
        self.entries = entries
        for name, entry in entries.items():
            mlflow_store.find(self.root, name, entry)  # adopts what plain `dvc repro` ran

    def of_hash(self, md5: str) -> Link:
        for run in mlflow_runs.finished(self.root, {"outs": f"%{md5}%"}):
            for path, value in _paths(run, "out").items():
                if value == md5:
                    return self.link(path, md5)
        raise PlanError(f"mlruns/mlflow.db: no finished run made {md5}")

    def link(self, path: str, md5: str) -> Link:
        if (path, md5) not in self.seen:
            self.seen[path, md5] = self._link(path, md5)
        return self.seen[path, md5]

    def _link(self, path: str, md5: str) -> Link:
        stage, made = self.made_now.get(path, (None, None))
        if stage is not None and made == md5:  # several runs may have made these bytes: take the recorded one
            run_id = mlflow_store.find(self.root, stage, self.entries[stage])
            if run_id is None:
                note = f"the chain breaks here: dvc.lock says that {stage} made it, but no MLflow run is on record"
                return self._linked(path, md5, stage, dvc_lock.hashes(self.entries[stage], "deps"), note=note)
            return self._of_run(path, md5, mlflow_runs.get(self.root, run_id))
        for run in mlflow_runs.finished(self.root, {mlflow_store.tag_name("out", path): md5}):
            return self._of_run(path, md5, run)
        if stage is not None:
            return Link(path, md5, stage, note=f"the chain breaks here: no finished run of {stage} made this version")
        return Link(path, md5, note="raw: no stage makes it")

    def _of_run(self, path: str, md5: str, run: "Run") -> Link:
        return self._linked(
            path,
            md5,
            run.tags[PREFIX + "stage"],
            _paths(run, "dep"),
            run_id=run.id,
            made_at=run.started,
            commit=run.tags.get(PREFIX + "git_commit"),
            dirty=run.tags.get(PREFIX + "git_dirty"),
            params=run.params,
        )

    def _linked(self, path: str, md5: str, stage: str, deps: Mapping[str, str], **facts: Any) -> Link:
        code = {dep: value for dep, value in deps.items() if dep.endswith(".py")}
        inputs = tuple(self.link(dep, value) for dep, value in sorted(deps.items()) if dep not in code)
        return Link(path, md5, stage, code=code, inputs=inputs, **facts)


def _paths(run: "Run", kind: str) -> dict[str, str]:
    start = f"{PREFIX}{kind}."
    return {name.removeprefix(start): value for name, value in run.tags.items() if name.startswith(start)}
