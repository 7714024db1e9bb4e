"""One stage's records in DVC: whether it is out of date or can be restored, and how its new outs are recorded.

The steps have the order of plain `dvc repro`, so that both write the same dvc.lock and share the run cache. There are
two differences: the repository's lock is not held while the command runs and its outs are hashed, and the previous outs
are kept until the new ones are recorded.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

from flows.engine.dvc_closure import StageGraph
from flows.engine.dvc_lock import (
    Entry,
    get_data_hashes,
    get_entry_hashes,
    join_out_hashes,
    read_lock_entry,
    write_lock_entry,
)
from flows.engine.dvc_repository import hold_dvc_lock, open_repo
from flows.engine.previous_outputs import Previous

if TYPE_CHECKING:
    from flows.engine.dvc_closure import PipelineStage, Repo

COMMAND = "posttrain run"  # this and the stage's name reserve paths against `dvc repro`
OUT = re.compile(r"^- path: (.*)\n(?:  .*\n)*?  md5: (\S+)", re.MULTILINE)  # in an entry of the run cache
Origin = Literal["recorded", "other inputs", "elsewhere"]

_read: WeakKeyDictionary["Repo", Mapping[tuple[str, str], frozenset[Path]]] = WeakKeyDictionary()


class DepChanged(Exception):
    """The dep at `path` changed while the stage ran, so its outs belong to neither version."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} changed while the stage ran, so its result was not recorded; run it again")
        self.path = path


class StageRecords:
    """DVC's view of one stage, private to the thread that runs it. `gate` keeps the threads of this process apart.

    `waiting` is called with a line while another process holds DVC's lock, and may raise.
    """

    def __init__(self, repo: "Repo", name: str, gate: Lock, previous: Path, waiting: Callable[[str], None]) -> None:
        self.repo = repo
        self.root = Path(repo.root_dir)
        self.name = name
        self._gate = gate
        self._waiting = waiting
        self._previous = Previous(previous, name)
        self._cleanup = ExitStack()
        with self.locked():
            [self.stage] = StageGraph(self.repo).load([name])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold DVC's repository lock."""
        with self._gate, hold_dvc_lock(self.repo, self._waiting):
            yield

    def close(self) -> None:
        """Free what `make_way` reserved."""
        self._cleanup.close()

    def entry(self) -> Entry:
        """The stage as dvc.lock has it or would have it."""
        return build_lock_entry(self.stage)

    def restore(self) -> bool:
        """Under the lock: if the run cache has the outs, take them from there and record them.

        A frozen stage gets the outs that dvc.lock records, whatever its deps are by now.
        """
        from dvc.stage.cache import RunCacheNotFoundError
        from dvc_data.hashfile.hash_info import HashInfo

        self._move_previous_outs_aside()
        if classify_out_origin(self.stage) == "other inputs":
            for out in self.stage.outs:
                out.hash_info = HashInfo()  # DVC asks the run cache itself only about a stage without recorded outs
        try:
            if self.stage.frozen:
                return self._checkout_recorded_outs()
            self.repo.stage_cache.restore(self.stage)
            self.stage.save_outs()
            self.stage.commit()
            self.record()
        except (RunCacheNotFoundError, TypeError):  # TypeError: a kill left an empty folder there
            self.undo()
            return False
        except BaseException:
            self.undo()
            raise
        return True

    def _checkout_recorded_outs(self) -> bool:
        cached: bool = self.stage.outs_cached()
        if cached:
            self.stage.checkout(force=True)
            self._previous.discard()
        else:
            self.undo()
        return cached

    def move_outs_aside_and_reserve_paths(self) -> None:
        """Under the lock: note the state of the deps, put the old outs aside, reserve the paths against `dvc repro`."""
        self.stage.save_deps()
        reserved = hold_path_reservation(self.repo, [self.stage], f"{COMMAND} {self.name}")
        reserved.__enter__()
        self._cleanup.callback(self._release_reservation, reserved)
        self._move_previous_outs_aside()

    def save_outs(self) -> None:
        """Hash the outs and move them into the cache, without DVC's lock, so that several stages can do so at once."""
        with self._gate:  # stages may share a .gitignore
            self.stage.ignore_outs()
        for out in self.stage.outs:
            out.save()
            out.commit()

    def check_deps(self) -> None:
        """Raise DepChanged if a dep is no longer what it was before the command ran."""
        changed = [path for dep in self.stage.deps for path in dep.status()]
        if changed:
            raise DepChanged(str(changed[0]))

    def keep(self) -> None:
        """Write the run cache with what a run has made; from there it can be restored even if dvc.lock is never
        written.
        """
        if _can_be_in_run_cache(self.stage):
            self.repo.stage_cache.save(self.stage)

    def record(self) -> None:
        """Under the lock: write dvc.lock, and delete the old outs."""
        write_lock_entry(self.root, self.stage)
        self._previous.discard()

    def undo(self) -> None:
        """Put the previous outs back, which dvc.lock still records."""
        self._previous.restore_outs()

    def _move_previous_outs_aside(self) -> None:
        outs = [out for out in self.stage.outs if not out.persist]
        self._previous.keep([Path(out.fs_path) for out in outs], read_lock_entry(self.root, self.name))

    def _release_reservation(self, reserved: Any) -> None:
        with self._gate:
            reserved.__exit__(None, None, None)


def build_lock_entry(stage: "PipelineStage") -> Entry:
    """The stage as dvc.lock has it or would have it: `cmd`, `deps`, `params`, `outs`."""
    from dvc.stage.serialize import to_single_stage_lockfile

    entry: Entry = to_single_stage_lockfile(stage)
    return entry


def hold_path_reservation(
    repo: "Repo", stages: "Sequence[PipelineStage]", command: str
) -> AbstractContextManager[object]:
    """DVC's own lock of what these stages read and write, in the name of a command."""
    from dvc.rwlock import rwlock

    read = [dep.fs_path for stage in stages for dep in stage.deps]
    written = [out.fs_path for stage in stages for out in stage.outs]
    hardlink = repo.config["core"].get("hardlink_lock", False)
    reserved: AbstractContextManager[object] = rwlock(repo.tmp_dir, repo.fs, command, read, written, hardlink)
    return reserved


def _can_be_in_run_cache(stage: "PipelineStage") -> bool:
    """Whether DVC writes the run cache for this stage, by its own rule: not for one without deps or outs."""
    return bool(stage.deps and stage.outs) and all(out.use_cache or out.is_metric or out.is_plot for out in stage.outs)


def classify_out_origin(stage: "PipelineStage") -> Origin:
    """What the run cache knows of the outs that dvc.lock records for a stage.

    `recorded`: a run with these deps and parameters made them, or the run cache does not keep such stages. `other
    inputs`: it knows each of them, but from runs with other data or parameters only; so it is where git merged dvc.lock
    by lines. `elsewhere`: it does not know them, as where `dvc pull` brought them without the run cache, or knows them
    from other code, whose edit may have changed nothing.
    """
    if (
        not _can_be_in_run_cache(stage)
        or stage.always_changed
        or any(out.persist or not out.hash_info for out in stage.outs)
    ):
        return "recorded"
    entry = build_lock_entry(stage)
    key = compute_run_cache_key(entry)
    folder = Path(stage.repo.stage_cache.cache_dir)
    below = folder / key[:2] / key
    if (below / compute_entry_hash(entry)).exists() or any(
        join_out_hashes(other) == join_out_hashes(entry) for other in _iterate_folder_entries(below)
    ):
        return "recorded"
    makers = [
        _index_run_cache_by_out(stage.repo).get(out, frozenset()) for out in get_entry_hashes(entry, "outs").items()
    ]
    if not all(makers):
        return "elsewhere"
    runs = (run for file in frozenset.intersection(*makers) for run in iterate_run_cache_file_entries(file))
    return (
        "elsewhere"
        if any(not _has_different_shared_value(_get_data_and_params(run), _get_data_and_params(entry)) for run in runs)
        else "other inputs"
    )


def _get_data_and_params(entry: Entry) -> Mapping[str, Any]:
    return {"data": get_data_hashes(entry), "params": entry.get("params", {})}


def _has_different_shared_value(first: object, other: object) -> bool:
    """Whether a value differs that both have: a new version may know more parameters and deps."""
    if isinstance(first, Mapping) and isinstance(other, Mapping):
        return any(_has_different_shared_value(value, other[key]) for key, value in first.items() if key in other)
    return first != other


def _index_run_cache_by_out(repo: "Repo") -> Mapping[tuple[str, str], frozenset[Path]]:
    """Path and hash of each out in the run cache -> the entries that have it; read once for a repository that is
    open.
    """
    if repo not in _read:
        makers: dict[tuple[str, str], set[Path]] = {}
        for file in Path(repo.stage_cache.cache_dir).glob("??/*/*"):
            with suppress(OSError, UnicodeDecodeError):
                for path, md5 in OUT.findall(file.read_text().rpartition("\nouts:\n")[2]):
                    makers.setdefault((path.strip("\"'"), md5), set()).add(file)
        _read[repo] = {out: frozenset(files) for out, files in makers.items()}
    return _read[repo]


def compute_run_cache_key(entry: Entry) -> str:
    """DVC's own key of the run cache: of the command, deps, params and the paths of the outs."""
    from dvc.stage.cache import _get_cache_hash

    return str(_get_cache_hash(dict(entry), key=True))


def get_run_cache_entry_file(root: Path, entry: Entry) -> Path:
    """The file in which the run cache keeps this entry: below two letters of its key, under its key, by its own
    hash.
    """
    key = compute_run_cache_key(entry)
    return get_run_cache_folder(root.absolute()) / key[:2] / key / compute_entry_hash(entry)


def compute_entry_hash(entry: Entry) -> str:
    """DVC's own hash of a whole entry, by which the run cache names it."""
    from dvc.stage.cache import _get_cache_hash

    return str(_get_cache_hash(dict(entry)))


def iterate_run_cache_entries(root: Path, key: str) -> Iterator[Entry]:
    """The entries of the run cache under this key."""
    return _iterate_folder_entries(get_run_cache_folder(root.absolute()) / key[:2] / key)


def _iterate_folder_entries(folder: Path) -> Iterator[Entry]:
    for record in folder.glob("*"):
        yield from iterate_run_cache_file_entries(record)


def iterate_run_cache_file_entries(record: Path) -> Iterator[Entry]:
    """The entry in a file of the run cache; none in one that a kill has torn, which DVC ignores too."""
    from dvc.utils.serialize import YAMLFileCorruptedError, load_yaml

    with suppress(OSError, YAMLFileCorruptedError):
        entry = load_yaml(record)
        if isinstance(entry, Mapping) and all("path" in out for out in entry.get("outs", ())):
            yield entry


@lru_cache(maxsize=4)
def get_run_cache_folder(root: Path) -> Path:
    """The folder of DVC's run cache, for an absolute `root`; to open the repository for each question would cost 70
    ms.
    """
    with closing(open_repo(root)) as repo:
        return Path(repo.stage_cache.cache_dir)
