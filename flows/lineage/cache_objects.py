"""DVC's cache, read by hash: the file of an object, the files of a folder, and a copy of either."""

import json
import re
import shutil
from contextlib import closing, suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath

from flows.engine.dvc_repository import PlanError, open_repo
from flows.lineage.cleaning import removal_log

MD5 = re.compile(r"[0-9a-f]{32}(\.dir)?")


def find_cache_object(root: Path, md5: str) -> Path | None:
    """The file that holds this object, or None where the cache does not have it (any more)."""
    if not MD5.fullmatch(md5):
        return None
    file = _get_cache_folder(root.absolute()) / md5[:2] / md5[2:]
    return file if file.is_file() else None


def read_cached_file_hashes(root: Path, md5: str) -> dict[str, str]:
    """Path within the folder -> hash of each file of a folder's object; of a file's object {"": md5}.

    PlanError if the cache does not have the folder's list, or if that is not a list of paths below the folder.
    """
    if not md5.endswith(".dir"):
        return {"": md5}
    listed = find_cache_object(root, md5)
    if listed is None:
        raise PlanError(f"{md5}: the cache does not have this folder; it was {_format_missing_object_cause(root, md5)}")
    try:
        hashes = {str(item["relpath"]): str(item["md5"]) for item in json.loads(listed.read_text())}
    except (ValueError, TypeError, KeyError, OSError):
        raise PlanError(f"{listed}: expected DVC's list of a folder's files") from None
    for name, file_md5 in hashes.items():
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts or not relative.parts or not MD5.fullmatch(file_md5):
            raise PlanError(f"{listed}: {name!r}: expected a path within the folder, and its hash")
    return hashes


def is_cache_object_complete(root: Path, md5: str) -> bool:
    """Whether the cache has this object, of a folder all files."""
    with suppress(PlanError):
        return all(
            find_cache_object(root, object_md5) is not None
            for object_md5 in (md5, *read_cached_file_hashes(root, md5).values())
        )
    return False


def copy_from_cache(root: Path, md5: str, target: Path) -> None:
    """Copy a file or folder out of the cache to `target`, which must not exist; PlanError if something of it is
    missing.
    """
    hashes = read_cached_file_hashes(root, md5)
    sources = {name: find_cache_object(root, file_md5) for name, file_md5 in hashes.items()}
    for name, source in sources.items():
        if source is None:
            shown_path = f"{target.name}/{name}".rstrip("/")
            raise PlanError(
                f"{shown_path}: {hashes[name]} is not in the cache; it was "
                f"{_format_missing_object_cause(root, hashes[name])}"
            )
    if md5.endswith(".dir"):
        target.mkdir(parents=True)
    for name, source in sources.items():
        file = target / name if name else target
        file.parent.mkdir(parents=True, exist_ok=True)
        assert source is not None
        shutil.copyfile(source, file)


def _format_missing_object_cause(root: Path, md5: str) -> str:
    """What became of an object that the cache does not have."""
    when = removal_log.load_removal_times(root).get(md5)
    return removal_log.format_removal_date(when) if when else "collected, or never pulled"


@lru_cache(maxsize=4)
def _get_cache_folder(root: Path) -> Path:
    """Where DVC keeps objects by md5; it may be shared, and lie elsewhere."""
    with closing(open_repo(root)) as repo:
        return Path(repo.cache.local.path)
