"""The files of another repository's runs, copied one by one: no link is followed, nothing here is overwritten.

A file is written beside its place and renamed, so that a kill leaves whole files or none; the next time adds what is missing.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from flows.engine.dvc_repository import PlanError
from flows.lineage.merging.other_database import RefusedError, shown
from tasks.common.mlflow_database import ARTIFACTS

HALF = ".merging"  # the file that is being written, directly below mlruns/artifacts
DEEPEST = 32
NO_LINKS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # opening a pipe would wait for ever


@dataclass
class Copies:
    """Copies from `source`, the folder of all runs' files there, into the repository at `root`; counts what it copies."""

    source: Path
    root: Path
    dry_run: bool
    files: int = 0
    size: int = 0  # bytes
    left_out: dict[str, str] = field(
        default_factory=dict
    )  # RUN_ID/artifacts/PATH -> what it is, which is no plain file

    def take(self, run_id: str) -> None:
        """Copy a run's files that are not here yet; RefusedError if one that lies here has another content."""
        for name, theirs in self._files(run_id):
            with theirs:
                if os.path.lexists(self.root / ARTIFACTS / name) and not _same(theirs, self.root / ARTIFACTS / name):
                    raise RefusedError(f"{shown(ARTIFACTS / name)} lies here already, with another content")
        self.complete(run_id)

    def complete(self, run_id: str) -> None:
        """Copy those of a run's files whose names are not here yet."""
        for name, theirs in self._files(run_id):
            target = self.root / ARTIFACTS / name
            with theirs:
                if not os.path.lexists(target):
                    self.files += 1
                    self.size += os.fstat(theirs.fileno()).st_size
                    if not self.dry_run:
                        self._copy(theirs, target)

    def _copy(self, theirs: BinaryIO, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        half = self.root / ARTIFACTS / HALF
        with half.open("wb") as ours:
            shutil.copyfileobj(theirs, ours, 2**20)
        half.rename(target)

    def _files(self, run_id: str) -> Iterator[tuple[Path, BinaryIO]]:
        """RUN_ID/artifacts/PATH of each plain file of a run, and the file, open."""
        top = self.source / run_id / "artifacts"
        for folder in (self.source, top.parent, top):
            if folder.is_symlink():
                self.left_out[shown(folder.relative_to(self.source.parent))] = "a link"
                return
        if not top.is_dir():
            return
        for place, folders, files, inside in os.fwalk(top, onerror=_unreadable, follow_symlinks=False):
            within = Path(place).relative_to(self.source)
            if len(within.parts) > DEEPEST:
                self.left_out[shown(within)] = f"more than {DEEPEST} folders deep"
                folders.clear()
                continue
            folders.sort()
            for name in folders:
                if stat.S_ISLNK(os.lstat(name, dir_fd=inside).st_mode):
                    self.left_out[shown(within / name)] = "a link"
            for name in sorted(files):
                if theirs := _opened(name, inside):
                    yield within / name, theirs
                else:
                    self.left_out[shown(within / name)] = "a link, or no plain file"


def _opened(name: str, folder: int) -> BinaryIO | None:
    """A plain file, opened to read; None if it is anything else."""
    if not stat.S_ISREG(os.lstat(name, dir_fd=folder).st_mode):
        return None
    opened = os.fdopen(os.open(name, NO_LINKS, dir_fd=folder), "rb")
    if stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
        return opened
    opened.close()
    return None


def _same(theirs: BinaryIO, ours: Path) -> bool:
    """Whether `ours` is a plain file with the same bytes."""
    facts = ours.lstat()
    if not stat.S_ISREG(facts.st_mode) or facts.st_size != os.fstat(theirs.fileno()).st_size:
        return False
    with ours.open("rb") as here:
        while block := theirs.read(2**20):
            if block != here.read(len(block)):
                return False
    return True


def _unreadable(error: OSError) -> None:
    """What lies there and cannot be read is a fault; what is not there is none."""
    if not isinstance(error, FileNotFoundError):
        raise PlanError(f"{shown(error.filename)}: {error.strerror}") from None
