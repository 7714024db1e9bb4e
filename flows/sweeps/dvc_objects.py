"""Outs in DVC's cache by their hashes: laid out as DVC would, described as deps, and put there with their run-cache
entry.
"""

import os
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Any

from flows.engine.dvc_lock import Entry
from flows.engine.dvc_repository import PlanError, open_repo
from flows.engine.dvc_stage import get_run_cache_entry_file
from flows.lineage import cache_objects
from flows.lineage.reproduction.digests import LISTED, Digest, compute_dvc_hash, has_recorded_hash

__all__ = ["build_dep_item", "check_out_cached_object", "has_recorded_hash", "write_run_cache_entry"]


def build_dep_item(root: Path, path: str, outs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A dep at `path` as dvc.lock has it, out of the outs (by path) that lie there, above it or below it."""
    if path in outs:
        return {
            "path": path,
            **{name: outs[path][name] for name in ("hash", "md5", "size", "nfiles") if name in outs[path]},
        }
    dep_path = PurePosixPath(path)
    files = dict[str, Digest]()
    for out, item in outs.items():
        for name, md5 in cache_objects.read_cached_file_hashes(root, str(item["md5"])).items():
            file = PurePosixPath(out, name) if name else PurePosixPath(out)
            if file == dep_path or dep_path in file.parents:
                within = "" if file == dep_path else file.relative_to(dep_path).as_posix()
                kept = cache_objects.find_cache_object(root, md5)
                files[within] = Digest(md5, "", kept.stat().st_size if kept else 0)
    if not files:
        raise PlanError(f"{path}: upstream stages did not make it")
    md5 = compute_dvc_hash(files)
    item = {"path": path, "hash": "md5", "md5": md5, "size": sum(digest.size for digest in files.values())}
    return {**item, "nfiles": len(files)} if md5.endswith(LISTED) else item


def check_out_cached_object(root: Path, md5: str, target: Path) -> None:
    """Have the file or folder at `target`, by the kind of links or copies that the repository's cache is configured
    for.
    """
    from dvc.fs import LocalFileSystem
    from dvc_data.hashfile import load
    from dvc_data.hashfile.checkout import checkout
    from dvc_data.hashfile.hash_info import HashInfo

    if not cache_objects.is_cache_object_complete(root, md5):
        raise PlanError(f"{target.name}: {md5} is not whole in the cache")
    target.parent.mkdir(parents=True, exist_ok=True)
    with closing(open_repo(root)) as repo:
        odb = repo.cache.local
        checkout(str(target), LocalFileSystem(), load(odb, HashInfo("md5", md5)), odb, force=True, quiet=True)


def write_run_cache_entry(root: Path, entry: Entry) -> None:
    """Write the entry into the run cache, whole or not at all; its outs must be in the cache."""
    from dvc.utils.serialize import dumps_yaml

    file = get_run_cache_entry_file(root, entry)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.parents[1] / f".{file.name}.{os.getpid()}"  # DVC takes whatever lies beside an entry for one
    partial.write_text(dumps_yaml(dict(entry)))
    partial.replace(file)
