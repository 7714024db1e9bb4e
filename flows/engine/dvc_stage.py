"""One stage's records in DVC: is it out of date, can it be restored, and how its new outs are recorded.

The order is the one in which plain `dvc repro` does it, so that both write the same dvc.lock and share the run cache;
only that the repository's lock is not held while the command runs and its outs are hashed, and that the outs of
before are kept until the new ones are recorded.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

from flows.engine.dvc_changes import why
from flows.engine.dvc_closure import StageGraph
from flows.engine.dvc_lock import Entry, read_entry, write_entry
from flows.engine.dvc_repository import open_repo
from flows.engine.previous import Previous

COMMAND = "posttrain run"  # by this name, and the stage's behind it, paths are reserved against `dvc repro`


class DepChanged(Exception):
    """A dep of the stage changed while it ran: what it made belongs to neither version."""


class StageRecords:
    """DVC's view of one stage, private to the thread that runs it. `gate` keeps the threads of this process apart."""

    def __init__(self, root: Path, name: str, gate: Lock, previous: Path) -> None:
        self.root, self.name, self._gate = root, name, gate
        self._previous = Previous(previous, name)
        self._cleanup = ExitStack()
        self.repo = open_repo(root)
        self._cleanup.callback(self.repo.close)
        with self.locked():
            [self.stage] = StageGraph(self.repo).load([name])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold DVC's repository lock."""
        from dvc.repo import lock_repo

        with self._gate, lock_repo(self.repo), self.repo.scm_context(quiet=True):
            yield

    def close(self) -> None:
        """Free what `make_way` reserved."""
        self._cleanup.close()

    def reason(self) -> str | None:
        """Why the stage is out of date."""
        return why(self.stage)

    def entry(self) -> Entry:
        """The stage as dvc.lock has it or would have it: `cmd`, `deps`, `params`, `outs`."""
        from dvc.stage.serialize import to_single_stage_lockfile

        entry: Entry = to_single_stage_lockfile(self.stage)
        return entry

    def restore(self) -> bool:
        """Under the lock: take the outs from the run cache and record them, if it has them."""
        from dvc.stage.cache import RunCacheNotFoundError

        self._keep_previous()
        try:
            self.repo.stage_cache.restore(self.stage)
            self.stage.save_outs()
            self.stage.commit()
            self.record()
        except (RunCacheNotFoundError, TypeError):  # TypeError: its folder there is empty, as a kill may leave it
            self.undo()
            return False
        except BaseException:
            self.undo()
            raise
        return True

    def make_way(self) -> None:
        """Under the lock: note the deps as they are, put the old outs aside, reserve the paths against `dvc repro`."""
        from dvc.rwlock import rwlock

        stage = self.stage
        stage.save_deps()
        paths = [dep.fs_path for dep in stage.deps], [out.fs_path for out in stage.outs]
        hardlink = self.repo.config["core"].get("hardlink_lock", False)
        reserved = rwlock(self.repo.tmp_dir, self.repo.fs, f"{COMMAND} {self.name}", *paths, hardlink)
        reserved.__enter__()
        self._cleanup.callback(self._free, reserved)
        self._keep_previous()

    def save_outs(self) -> None:
        """Hash the outs and move them into the cache, without DVC's lock: large outs of several stages go side by side."""
        with self._gate:  # stages may share a .gitignore
            self.stage.ignore_outs()
        for out in self.stage.outs:
            out.save()
            out.commit()

    def check_deps(self) -> None:
        """Raise DepChanged if a dep is no longer what it was before the command ran."""
        changed = [path for dep in self.stage.deps for path in dep.status()]
        if changed:
            raise DepChanged(f"{changed[0]} changed while the stage ran, so its result was not recorded; run it again")

    def record(self) -> None:
        """Under the lock: write the run cache and dvc.lock, and let the old outs go."""
        kinds = [out.use_cache or out.is_metric or out.is_plot for out in self.stage.outs]
        if all(kinds):  # DVC's own rule
            self.repo.stage_cache.save(self.stage)
        write_entry(self.root, self.stage)
        self._previous.discard()

    def undo(self) -> None:
        """Put the outs of before back; dvc.lock still speaks of them."""
        self._previous.put_back()

    def _keep_previous(self) -> None:
        outs = [out for out in self.stage.outs if not out.persist]
        self._previous.keep([Path(out.fs_path) for out in outs], read_entry(self.root, self.name))

    def _free(self, reserved: Any) -> None:
        with self._gate:
            reserved.__exit__(None, None, None)


def run_cache_key(entry: Entry) -> str:
    """DVC's own key of the run cache: of the command, deps, params and the paths of the outs."""
    from dvc.stage.cache import _get_cache_hash

    return str(_get_cache_hash(copy.deepcopy(dict(entry)), key=True))


def cached_entries(root: Path, key: str) -> Iterator[Entry]:
    """What the run cache has by this key."""
    from dvc.utils.serialize import YAMLFileCorruptedError, load_yaml

    with closing(open_repo(root)) as repo:
        records = Path(repo.stage_cache.cache_dir, key[:2], key).glob("*")
    for record in records:
        with suppress(OSError, YAMLFileCorruptedError):  # torn by a kill: DVC passes over it
            entry = load_yaml(record)
            if isinstance(entry, Mapping) and all("path" in out for out in entry.get("outs", ())):
                yield entry
