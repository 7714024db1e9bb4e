"""The MD5 of files, computed again only where size, times or inode have changed since it was last known.

A changed byte changes a file's ctime, which no program can set back as it can the mtime. Whoever can write this memory,
or the disk below the file system, can deceive it: `full` reads every byte.
"""

import hashlib
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Lock

PLACE = Path(".dvc/tmp/posttrain/digests.json")
VERSION = 1
CHUNK = 2**22  # bytes
SETTLED = 2 * 10**9  # nanoseconds after its last change from which on a file's times tell a further change for certain
MD5 = re.compile(r"[0-9a-f]{32}")

State = tuple[int, int, int, int]  # size, mtime_ns, ctime_ns, inode
OnProgress = Callable[[int, int], None]  # bytes read so far, bytes to read


class Memory:
    """The digests of the files of one repository, kept between audits in PLACE."""

    def __init__(self, root: Path, full: bool = False) -> None:
        self.root = root
        self.full = full
        self.read = 0  # bytes that were hashed by this object
        self._known: dict[str, tuple[State, str]] = _load_known_digests(root / PLACE)
        self._now: dict[Path, str | None] = {}

    def digests(
        self, files: Iterable[Path], on_progress: OnProgress = lambda done, total: None
    ) -> Mapping[Path, str | None]:
        """The MD5 of each file; None for one that is not there or cannot be read."""
        wanted = list(dict.fromkeys(files))
        to_read = dict[Path, State]()
        for file in wanted:
            if file in self._now:
                continue
            state = _get_file_state(file)
            remembered = self._known.get(str(file))
            if state is None:
                self._now[file] = None
            elif remembered is not None and remembered[0] == state and not self.full:
                self._now[file] = remembered[1]
            else:
                to_read[file] = state
        self._hash_files(to_read, on_progress)
        return {file: self._now[file] for file in wanted}

    def save(self) -> None:
        """Keep what is known of files that still exist; a kill on the way leaves the file of before."""
        remembered = {file: [*state, md5] for file, (state, md5) in self._known.items() if Path(file).exists()}
        target = self.root / PLACE
        with suppress(OSError):  # a repository that cannot be written to is audited all the same
            target.parent.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=target.name)
            with os.fdopen(descriptor, "w") as file:
                json.dump({"version": VERSION, "files": remembered}, file)
            Path(name).replace(target)

    def _hash_files(self, files: Mapping[Path, State], on_progress: OnProgress) -> None:
        """Hash the files side by side, and remember those that did not change meanwhile."""
        total = sum(state[0] for state in files.values())
        done = 0
        counting = Lock()

        def digest(file: Path) -> str | None:
            nonlocal done
            hasher = hashlib.md5(usedforsecurity=False)
            try:
                with file.open("rb") as content:
                    while chunk := content.read(CHUNK):
                        hasher.update(chunk)
                        with counting:
                            done += len(chunk)
                            on_progress(done, total)
            except OSError:
                return None
            return hasher.hexdigest()

        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            for (file, before), md5 in zip(files.items(), pool.map(digest, files), strict=True):
                self._now[file] = md5
                self._known.pop(str(file), None)
                settled = time.time_ns() - before[2] > SETTLED

                if md5 is not None and settled and _get_file_state(file) == before:
                    self._known[str(file)] = before, md5
        self.read += done


def _get_file_state(file: Path) -> State | None:
    """What tells a change; None unless it is a file."""
    try:
        facts = file.stat()
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(facts.st_mode):
        return None
    return facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino


def _load_known_digests(path: Path) -> dict[str, tuple[State, str]]:
    """What an earlier audit kept; nothing where the file is torn or not ours."""
    try:
        content = json.loads(path.read_text())
        if content["version"] != VERSION:
            return {}
        return {
            str(file): ((int(size), int(mtime), int(ctime), int(inode)), md5)
            for file, (size, mtime, ctime, inode, md5) in content["files"].items()
            if MD5.fullmatch(md5)
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
