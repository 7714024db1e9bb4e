"""Modules that the flows start as processes, run in this process: their imports take longer than their work on toys."""

import io
import runpy
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest


def run_module(
    command: Sequence[str], *, cwd: Path, capture_output: bool, text: bool, check: bool, input: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Stands in for subprocess.run with `python -m MODULE ARGUMENT..`, whose output is captured as text."""
    python, option, module, *arguments = command
    assert (python, option, capture_output, text, check) == (sys.executable, "-m", True, True, False)
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(io.StringIO()) as output,
        redirect_stderr(io.StringIO()) as error,
    ):
        patch.chdir(cwd)
        patch.setattr(sys, "argv", [module, *arguments])
        patch.setattr(sys, "stdin", io.StringIO(input or ""))
        for name in (module, f"{module}.__main__"):
            patch.delitem(sys.modules, name, raising=False)
        status = 0
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
            print(end.code if isinstance(end.code, str) else "", end="", file=error)
    return subprocess.CompletedProcess(command, status, output.getvalue(), error.getvalue())
