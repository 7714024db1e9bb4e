"""Commands of toy stages without a supervisor, and a Python that starts without site: both take longer to start than a
toy stage to run.

That no command outlives its supervisor is tested in tests/flows/machine.
"""

import os
import select
import shlex
import subprocess
import sys
import sysconfig
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

PYTHON = f'python() {{ {shlex.quote(sys.executable)} -S "$@"; }}'  # for the shell that runs a stage's command


class PlainCommand:
    """Stands in for flows.machine.supervisor.Command, where a stage starts nothing that would have to be stopped."""

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        cwd: Path,
        environ: Mapping[str, str],
        log: Path,
        keep: Sequence[int] = (),
    ) -> None:
        lines = [shlex.join([*words, f"{PYTHON}\n{command}"]) for *words, command in commands]
        modules = f"{sysconfig.get_path('purelib')}:{environ.get('PYTHONPATH', '')}"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                ["sh", "-ec", "\n".join(lines)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env={**environ, "PYTHONPATH": modules},
                pass_fds=keep,
            )
        self._end = os.pidfd_open(self._process.pid) if hasattr(os, "pidfd_open") else None
        if self._end is not None:
            weakref.finalize(self, os.close, self._end)

    def wait(self, timeout: float | None = None) -> int | None:
        """The exit status, or None if it still runs."""
        if self._end is not None and timeout is not None:  # Popen.wait would look every 50 ms only
            ended = select.poll()
            ended.register(self._end, select.POLLIN)
            if not ended.poll(timeout * 1000):
                return None
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        """Kill it if it still runs."""
        self._process.kill()
        self._process.wait()


def without_supervisors(patch: pytest.MonkeyPatch) -> None:
    """Let stages that this process runs have no supervisors."""
    patch.setattr("flows.engine.dvc_command.Command", PlainCommand)
