"""The hashes of a file or folder: DVC's, by which outs and deps are recorded, and SHA-256, which nobody can forge."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CHUNK = 2**22  # bytes
LISTED = ".dir"  # the end of a folder's hash


@dataclass(frozen=True)
class Digest:
    """A file's hashes in hexadecimal, and its size in bytes."""

    md5: str
    sha256: str
    size: int


Files = Mapping[str, Digest]  # path within the folder -> digest; a single file has the path ""


def compute_file_digest(file: Path) -> Digest:
    """Read the file once."""
    md5 = hashlib.md5(usedforsecurity=False)
    sha256 = hashlib.sha256()
    size = 0
    with file.open("rb") as content:
        while chunk := content.read(CHUNK):
            md5.update(chunk)
            sha256.update(chunk)
            size += len(chunk)
    return Digest(md5.hexdigest(), sha256.hexdigest(), size)


def compute_path_digests(root: Path, path: Path) -> dict[str, Digest]:
    """The digest of a file, or of each file of a folder that DVC hashes by the .dvcignore of `root`; PlanError if there
    is neither.
    """
    from flows.engine.dvc_walk import list_hashed_files

    if not path.is_dir():
        return {"": compute_file_digest(path)}
    return {file.relative_to(path).as_posix(): compute_file_digest(file) for file in list_hashed_files(root, path)}


def compute_dvc_hash(files: Files) -> str:
    """The hash by which dvc.lock has these files: a file's MD5, or that of the list of a folder's files."""
    if files.keys() == {""}:
        return files[""].md5
    listed = [{"md5": files[name].md5, "relpath": name} for name in sorted(files)]
    return hashlib.md5(json.dumps(listed).encode(), usedforsecurity=False).hexdigest() + LISTED


def has_recorded_hash(root: Path, path: Path, recorded: str) -> bool:
    """Whether the file or folder is there with the recorded hash, by the .dvcignore of `root`."""
    if not path.exists() or path.is_dir() != recorded.endswith(LISTED):
        return False
    return compute_dvc_hash(compute_path_digests(root, path)) == recorded
