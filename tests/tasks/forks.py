"""Children of the tests' own process: they have already imported what they need, which takes a fresh one seconds."""

import os
import runpy
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tasks.common import model_files


def start(function: Callable[[], object]) -> int:
    """Call the function in a child; the child's id. It ends with status 0, or 1 where the function raises."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads; none of theirs goes on in the child
        child = os.fork()
    if child:
        return child
    try:
        function()
        os._exit(0)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(1)


def ended(child: int) -> int:
    """Wait for its end; the exit status, negative where a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def wait_for_end(processes: Iterable[psutil.Process], seconds: float = 60.0) -> None:
    """Return once none of the processes runs; AssertionError where one still does then.

    Init may leave orphans zombies for seconds.
    """
    deadline = time.monotonic() + seconds
    while running := [process for process in processes if _runs(process)]:
        assert time.monotonic() < deadline, running
        time.sleep(0.01)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def render_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chat templates are rendered in a fork, with the limits of `python -m tasks.common.model_files`, and not in a
    fresh process.
    """
    instead = SimpleNamespace(run=run_module, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(model_files, "subprocess", instead)


def run_module(
    command: Sequence[str], *, input: str = "", cwd: str | Path = ".", **_: Any
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run does with `python -m MODULE ARGUMENT..`, in a fork."""
    assert command[:2] == [sys.executable, "-m"]
    module = command[2]
    with TemporaryFile("w+") as stdin, TemporaryFile("w+") as stdout, TemporaryFile("w+") as stderr:
        stdin.write(input)
        stdin.seek(0)

        def child() -> None:
            os.chdir(cwd)
            sys.stdin, sys.stdout, sys.stderr, sys.argv = stdin, stdout, stderr, [*command[2:]]
            sys.modules.pop(module, None)
            status = 0
            try:
                runpy.run_module(module, run_name="__main__", alter_sys=True)
            except SystemExit as exiting:
                status = 1 if exiting.code else 0
                if status:
                    print(exiting.code, file=stderr)
            stdout.flush()
            stderr.flush()
            os._exit(status)

        status = ended(start(child))
        stdout.seek(0)
        stderr.seek(0)
        return subprocess.CompletedProcess(command, status, stdout.read(), stderr.read())
