"""Waiting for processes that are no children of this one: init may leave them zombies for seconds."""

import time
from collections.abc import Iterable

import psutil


def wait_for_end(processes: Iterable[psutil.Process], seconds: float = 60.0) -> None:
    """Return once none of the processes runs; AssertionError where one still does after the given time."""
    deadline = time.monotonic() + seconds
    while running := [process for process in processes if _runs(process)]:
        assert time.monotonic() < deadline, running
        time.sleep(0.01)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
