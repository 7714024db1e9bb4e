"""The code of a run as git has it: the commit, the files that differ from it, and the difference itself as a patch.

The flows import this module too, so that `posttrain run` and plain `dvc repro` keep the same.
"""

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PATCH = "uncommitted.patch"  # the file's name among a run's artifacts
LARGEST = 2**20  # bytes of an untracked file that a patch may hold; larger ones are data, and only named
ALTOGETHER = 16 * LARGEST  # of all untracked files in a patch
YOUNG = 10**8  # nanoseconds: a file may change twice within a tick of its file system's clock
NAMED = 4000  # letters of the list of files that differ
EVERYTHING = ("--", ".", ":!dvc.lock", ":!mlruns")  # dvc.lock is recorded with the runs, and mlruns/ is the record

STATUS = ("--porcelain=v2", "--branch", "--no-ahead-behind", "-z", "--no-renames", "--untracked-files=all")
FIELDS = {
    "1": 7,
    "u": 9,
    "?": 0,
}  # kind of a line of that -> the fields between it and the path: changed, unmerged, untracked


# By root the last state and what decides it: a run asks at each of its stages.
_last: dict[Path, tuple[object, "Source"]] = {}


@dataclass(frozen=True)
class Source:
    """The state of the code. Without git, or without a commit, only the hashes of the files tell what a run was made with."""

    commit: str  # "none" without one
    dirty: str  # the files that differ from the commit; "no" if none does, "unknown" without git
    patch: bytes | None = (
        None  # what makes these files out of the commit's; None where nothing that may be kept differs
    )

    @property
    def digest(self) -> str | None:
        """SHA-256 of the patch."""
        return None if self.patch is None else hashlib.sha256(self.patch).hexdigest()


def state(root: Path) -> Source:
    """The commit, the files that differ from it, untracked ones that are not ignored included, and their difference to it."""
    if shutil.which("git") is None or not (root / ".git").exists():
        return Source("none", "unknown")
    commit, changed = "none", list[tuple[str, str]]()
    for line in _git(root, "status", *STATUS, *EVERYTHING).split(b"\0"):
        how, _, rest = line.decode(errors="surrogateescape").partition(" ")
        if rest.startswith("branch.oid "):
            oid = rest.removeprefix("branch.oid ")
            commit = "none" if oid == "(initial)" else oid
        elif how in FIELDS:
            changed.append((how, rest.split(" ", FIELDS[how])[-1]))
    if not changed:
        return Source(commit, "no")
    asked, facts = time.time_ns(), tuple(_facts(root / path) for _, path in changed)
    key = commit, tuple(changed), facts
    known = _last.get(root)
    if known is not None and known[0] == key:
        return known[1]
    source = _different(root, commit, changed)
    if asked - max((found[1] for found in facts if found), default=0) > YOUNG:
        _last[root] = key, source
    return source


def _different(root: Path, commit: str, changed: list[tuple[str, str]]) -> Source:
    """The state where these files differ from the commit."""
    dirty = " ".join(path for _, path in changed)[:NAMED]
    untracked = _small(root, [path for how, path in changed if how == "?"])
    return Source(commit, dirty, (_patch(root, untracked) or None) if commit != "none" else None)


def _facts(path: Path) -> tuple[int, int, int, int] | None:
    """Size, times of inode and content, and inode; None where there is nothing."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_size, found.st_ctime_ns, found.st_mtime_ns, found.st_ino


def _small(root: Path, untracked: list[str]) -> list[str]:
    """Those of the files that are small enough for a patch, each and together."""
    found, size = list[str](), 0
    for path in untracked:
        with suppress(OSError):  # it is gone already
            facts = (root / path).lstat()
            if stat.S_ISREG(facts.st_mode) and facts.st_size <= LARGEST:
                size += facts.st_size
                found.append(path)
    return found if size <= ALTOGETHER else []


def _patch(root: Path, untracked: list[str]) -> bytes:
    """The difference of the working files to the commit, through a copy of git's index: nothing of the repository changes."""
    index = root / os.fsdecode(_git(root, "rev-parse", "--git-path", "index").rstrip(b"\n"))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "index")
        if index.is_file():
            shutil.copy2(index, copy)  # with its time, by which git tells which files it has to read again
        names = "\0".join(untracked).encode(errors="surrogateescape")
        if untracked:
            options = ("--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul")
            _git(root, "--literal-pathspecs", "add", *options, index=copy, given=names)
        plain = (
            "--binary",
            "--no-color",
            "--no-ext-diff",
            "--no-textconv",
            "--no-renames",
            "--src-prefix=a/",
            "--dst-prefix=b/",
        )
        return _git(root, "diff", *plain, "HEAD", *EVERYTHING, index=copy)


def _git(root: Path, *arguments: str, index: Path | None = None, given: bytes = b"") -> bytes:
    environ = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", **({"GIT_INDEX_FILE": str(index)} if index else {})}
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, input=given, check=False, env=environ).stdout
