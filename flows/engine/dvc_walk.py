"""DVC's repository with a walk of its own over folders: what it would leave out of a hash, or never finish to read, is
refused.

A stage reads what lies behind a linked folder, in a repository within a folder, or in a pipe; DVC hashes none of that.
"""

import os
import shutil
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from dvc.fs import LocalFileSystem
from dvc.ignore import DvcIgnore, DvcIgnoreFilter
from dvc.repo import Repo

from flows.engine.dvc_repository import PlanError
from flows.machine import files

UNSEEN = "it is a DVC repository of its own"


class HashedFiles(DvcIgnoreFilter):  # type: ignore[misc]
    """The files of a folder that DVC hashes; PlanError for the first that it would not hash as it is read."""

    def __init__(self, fs: Any, root: str) -> None:
        super().__init__(fs, root)
        self._seen: set[str] = set()

    def walk(self, fs: Any, path: str, **options: Any) -> Iterator[tuple[str, list[str], list[str]]]:
        """As DVC walks, but a folder is looked through as a whole before its first file is hashed."""
        if fs.protocol != "local" or path == self.root_dir:  # where DVC looks for dvc.yaml
            return iter(super().walk(fs, path, **options))
        self.check(path)
        try:
            return iter([*self._iterate_checked_folders(path)])
        except RecursionError:
            self._raise_not_hashable(path, "its folders are nested too deeply")

    def check_all_hashable(self, path: str) -> None:
        """PlanError where the file, or a file of the folder, cannot be hashed.

        Several stages read the same: it is looked at once.
        """
        if path not in self._seen:
            self._seen.add(path)
            self.check(path)
            if os.path.isdir(path):
                self.walk(self.fs, path)

    def check(self, path: str) -> None:
        """PlanError where the file or folder is there and cannot be hashed, whatever may lie in it."""
        if os.path.lexists(path) and (what := files.find_hashing_fault(path, within=False)):
            self._raise_not_hashable(path, what)
        if os.path.isdir(path) and self.is_ignored_dir(path):
            self._raise_not_hashable(path, f"{UNSEEN}, or .dvcignore leaves it out: its files are not hashed")

    def _iterate_checked_folders(self, path: str) -> Iterator[tuple[str, list[str], list[str]]]:
        def unreadable(error: OSError) -> None:  # which os.walk would pass over
            self._raise_not_hashable(error.filename, f"it cannot be read ({error.strerror})")

        for folder, folders, names in os.walk(os.path.normpath(path), onerror=unreadable):
            kept, hashed = self(folder, folders, names)
            for name in sorted({*folders} - {*kept}):
                other = os.path.join(folder, name)
                if self.fs.exists(os.path.join(other, Repo.DVC_DIR)):
                    self._raise_not_hashable(
                        other, files.find_hashing_fault(other, within=True) or f"{UNSEEN}: its files are not hashed"
                    )
            for name in (*kept, *hashed):
                file = os.path.join(folder, name)
                if what := files.find_hashing_fault(file, within=True):
                    self._raise_not_hashable(file, what)
            if DvcIgnore.DVCIGNORE_FILE in hashed:
                other = os.path.join(folder, DvcIgnore.DVCIGNORE_FILE)
                self._raise_not_hashable(other, "it may lie in the repository's own folder only")
            folders[:] = kept
            yield folder, kept, hashed

    def _raise_not_hashable(self, path: str, what: str) -> NoReturn:
        raise PlanError(f"{files.format_relative_path(path, self.root_dir)}: {what}")


class Repository(Repo):  # type: ignore[misc]
    """DVC's repository, whose folders are walked so."""

    @cached_property
    def dvcignore(self) -> HashedFiles:
        """What decides which files of a folder are hashed."""
        return HashedFiles(self.fs, self.root_dir)


def list_hashed_files(root: Path, path: Path) -> list[Path]:
    """The files of a folder that DVC hashes by the .dvcignore of `root`, or the one file itself; PlanError as above."""
    filesystem = LocalFileSystem()
    walk = HashedFiles(filesystem, str(root))
    walk.check(str(path))
    if not path.is_dir():
        return [path]
    return [Path(folder, name) for folder, _, names in walk.walk(filesystem, str(path)) for name in sorted(names)]


def copy_hashed_files(root: Path, path: Path, target: Path) -> None:
    """Copy a file, or what DVC hashes of a folder, to `target`, which must not exist; PlanError before anything is
    copied.
    """
    sources = list_hashed_files(root, path)
    if path.is_dir():
        target.mkdir(parents=True)
    for file in sources:
        destination = target / file.relative_to(path)
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, destination)
