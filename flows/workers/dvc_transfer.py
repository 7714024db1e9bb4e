"""Objects between a checkout's DVC cache and its remote, by hash and no more of them than are named; what arrived is
read again.

DVC does not verify what it pushed (treeverse/dvc#10498), so here every object that was written is hashed where it lies,
on either side.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from flows.engine.dvc_lock import Entry
from flows.engine.dvc_repository import hold_dvc_lock, open_repo
from flows.engine.dvc_stage import get_run_cache_entry_file
from flows.engine.previous_outputs import delete_path
from flows.lineage import cache_objects

RETRY_SECONDS = (1, 2, 4, 8, 15, 30, 60)  # between two tries while the remote is away; after these it has failed
RUNS = "md5-dos2unix"  # DVC's kind of remote under which the run cache lies
Say = Callable[[str], None]


class TransferError(Exception):
    """The remote cannot be used: away, full, or with other bytes than expected. One line; another try may succeed."""


class DamagedError(TransferError):
    """An object of the remote has other bytes than its name says, and was put aside; it must be sent there again."""


def has_dvc_remote(root: Path, name: str = "") -> bool:
    """Whether DVC has this remote, or a default one."""
    from dvc.exceptions import DvcException

    with closing(open_repo(root)) as repo:
        try:
            repo.cloud.get_remote(name or None)
        except DvcException:
            return False
    return True


def get_default_remote_name(root: Path) -> str:
    """The name of DVC's default remote, "" without one; whether it can be reached is not asked."""
    with closing(open_repo(root)) as repo:
        return str(repo.config["core"].get("remote") or "")


def create_remote_folder(root: Path, name: str = "") -> None:
    """Make the folder of a remote on a disk, as a first push would. Later its absence means that it is away."""
    with closing(open_repo(root)) as repo:
        remote = repo.cloud.get_remote(name or None)
        if remote.fs.protocol == "local":
            remote.fs.makedirs(remote.path, exist_ok=True)


def store_in_cache(root: Path, path: Path, top: Path | None = None, move: bool = False) -> dict[str, Any]:
    """Put a file or folder into the cache; its hash, size and number of files, as DVC would write them to dvc.lock.

    `top` is the folder whose .dvcignore counts: the copy that the file lies in, or `root`. With `move` nothing is left
    at `path`.
    """
    from dvc.fs import LocalFileSystem
    from dvc_data.hashfile.build import build
    from dvc_data.hashfile.transfer import transfer

    from flows.engine.dvc_walk import HashedFiles

    with closing(open_repo(root)) as repo:
        odb = repo.cache.local
        filesystem = LocalFileSystem()
        ignored = HashedFiles(filesystem, str(top or root))
        staging, meta, obj = build(odb, str(path), filesystem, "md5", ignore=ignored)
        result = transfer(staging, odb, {obj.hash_info}, shallow=False, hardlink=move)
        if result.failed:
            raise TransferError(f"{path}: it cannot be put into the cache")
        facts = {name: value for name, value in meta.to_dict().items() if name in ("size", "nfiles")}
        if move:
            delete_path(path)
        return {"hash": "md5", "md5": str(obj.hash_info.value), **facts}


def push_objects(root: Path, hashes: Iterable[str], remote: str = "") -> None:
    """Bring objects from the cache to the remote, files before the folders that list them; TransferError if one is not
    whole there.
    """
    with _open_cache_and_remote(root, remote) as (cache, far):
        for md5 in hashes:
            files = sorted(
                {
                    listed_md5
                    for listed_md5 in cache_objects.read_cached_file_hashes(root, md5).values()
                    if listed_md5 != md5
                }
            )
            for object_md5 in [*files, md5]:
                if not _is_complete_in_remote(cache, far, object_md5):
                    _copy_object(cache, far, object_md5)


def fetch_objects(root: Path, hashes: Iterable[str], remote: str = "") -> None:
    """Bring objects from the remote to the cache; TransferError if one is missing or has other bytes."""
    with _open_cache_and_remote(root, remote) as (cache, far):
        for md5 in hashes:
            _fetch_object(cache, far, md5)
            for file_md5 in sorted(
                {
                    listed_md5
                    for listed_md5 in cache_objects.read_cached_file_hashes(root, md5).values()
                    if listed_md5 != md5
                }
            ):
                _fetch_object(cache, far, file_md5)


def fetch_stage_outputs(root: Path, stages: Sequence[str]) -> None:
    """Bring what dvc.lock records of these stages from DVC's default remote to the cache, and its run cache; what the
    remote lacks stays away.

    TransferError where there is no such remote, or it cannot be used.
    """
    from dvc.exceptions import DownloadError

    try:
        with closing(open_repo(root)) as repo, hold_dvc_lock(repo):
            _check_remote_present(repo, "")
            with suppress(DownloadError):  # of objects that the remote does not have
                repo.fetch(targets=[*stages], run_cache=True)
    except TransferError:
        raise
    except Exception as error:  # DVC's own, or any of the library that reaches the remote
        raise TransferError(_format_remote_error("", error)) from None


def push_run_cache_entry(root: Path, entry: Entry, remote: str = "") -> None:
    """Write the entry into the remote's run cache; its outs must be there already."""
    from dvc.utils.serialize import dumps_yaml

    with _open_cache_and_remote(root, remote, RUNS) as (_, far):
        path = far.fs.join(far.path, "runs", *get_run_cache_entry_file(root, entry).parts[-3:])
        _write_verified_file(far, path, dumps_yaml(dict(entry)).encode())


def retry_transfer(what: Callable[[], None], say: Say, waits: Sequence[float] = RETRY_SECONDS) -> None:
    """Do `what`, again after a while if the remote fails; TransferError after the last of `waits` (seconds)."""
    for seconds in (*waits, None):
        try:
            return what()
        except TransferError as error:
            if seconds is None or isinstance(error, DamagedError):
                raise
            say(f"{error}; tries again")
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                time.sleep(0.2)
                say(f"{error}; tries again")


@contextmanager
def _open_cache_and_remote(root: Path, name: str, kind: str = "md5") -> Iterator[tuple[Any, Any]]:
    """The cache and the remote as DVC's object databases."""
    from dvc.exceptions import DvcException

    try:
        with closing(open_repo(root)) as repo:
            _check_remote_present(repo, name)
            yield repo.cache.local, repo.cloud.get_remote_odb(name or None, "push", hash_name=kind)
    except (DvcException, OSError) as error:
        raise TransferError(_format_remote_error(name, error)) from None


def _check_remote_present(repo: Any, name: str) -> None:
    """TransferError unless DVC has this remote; the folder of one on a disk that is not mounted is not there."""
    remote = repo.cloud.get_remote(name or None)
    if remote.fs.protocol == "local" and not remote.fs.isdir(remote.path):
        raise TransferError(f"DVC's remote: {remote.path} is not there")


def _format_remote_error(name: str, error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return f"DVC's remote {name or '(default)'}: {text}"


def _fetch_object(cache: Any, far: Any, md5: str) -> None:
    if cache.exists(md5):
        return
    if not far.exists(md5):
        raise TransferError(f"DVC's remote does not have {md5}")
    try:
        _copy_object(far, cache, md5)
    except TransferError:
        path = far.oid_to_path(md5)
        if _compute_md5(far.fs, path) == md5.removesuffix(".dir"):
            raise
        with suppress(OSError, NotImplementedError):
            far.fs.move(path, f"{path}.damaged")
        raise DamagedError(f"DVC's remote: {path} does not have the bytes of {md5}, and was put aside") from None


def _is_complete_in_remote(cache: Any, far: Any, md5: str) -> bool:
    """Whether the remote has the object, in the size that it has here: a transfer that was cut leaves less."""
    if not far.exists(md5):
        return False
    local_size, remote_size = (odb.fs.info(odb.oid_to_path(md5)).get("size") for odb in (cache, far))
    return remote_size is None or local_size == remote_size


def _copy_object(source: Any, target: Any, md5: str) -> None:
    """Copy one object, and read it again where it arrived."""
    with source.fs.open(source.oid_to_path(md5), "rb") as file:
        _write_verified_file(target, target.oid_to_path(md5), iter(lambda: file.read(2**20), b""), md5)


def _compute_md5(fs: Any, path: str) -> str:
    hasher = hashlib.md5()
    with fs.open(path, "rb") as file:
        while part := file.read(2**20):
            hasher.update(part)
    return hasher.hexdigest()


def _write_verified_file(target: Any, path: str, content: bytes | Iterable[bytes], md5: str = "") -> None:
    """Write a file beside its place, check its bytes there, and rename it."""
    fs = target.fs
    parts = [content] if isinstance(content, bytes) else content
    hasher = hashlib.md5()
    partial = fs.join(fs.parent(path), f".{PurePosixPath(path).name}.{os.getpid()}.{time.monotonic_ns()}")
    fs.makedirs(fs.parent(path), exist_ok=True)
    try:
        with fs.open(partial, "wb") as file:
            for part in parts:
                hasher.update(part)
                file.write(part)
        if _compute_md5(fs, partial) != hasher.hexdigest() or (md5 and hasher.hexdigest() != md5.removesuffix(".dir")):
            raise TransferError(f"{path}: the bytes that arrived are not those of {md5 or 'the entry'}")
        fs.move(partial, path)
    except BaseException:
        with suppress(OSError):
            fs.remove(partial)
        raise
