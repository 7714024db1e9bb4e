"""A lock for each stage of a checkout, held by every process that may write its outs, so that there never are two
writers.

The kernel frees it when the last process that has it open is dead: the command, its supervisor, and whoever started
them.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path(".dvc/tmp/posttrain/stages")
LOOK_SECONDS = 0.2


@contextmanager
def hold_stage_lock(root: Path, stage: str, holder: str, waiting: Callable[[str], None]) -> Iterator[int]:
    """Hold the stage's lock; yields its file descriptor, which the command must inherit.

    While another process has the lock, `waiting` is called with a line that names it, again and again; it may raise.
    """
    path = root / FOLDER / f"{stage}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        while not _try_lock(file):
            waiting(f"waits for an earlier attempt to end ({_read_lock_holder(file) or 'unknown'})")
            time.sleep(LOOK_SECONDS)
        os.ftruncate(file, 0)
        os.pwrite(file, holder.encode(), 0)
        yield file
    finally:
        os.close(file)


def find_stage_lock_holder(root: Path, stage: str) -> str | None:
    """Who holds the stage's lock, or None if nobody does."""
    path = root / FOLDER / f"{stage}.lock"
    if not path.exists():
        return None
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return None if _try_lock(file) else _read_lock_holder(file) or "unknown"
    finally:
        os.close(file)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_lock_holder(file: int) -> str:
    return os.pread(file, 200, 0).decode(errors="replace").strip()
