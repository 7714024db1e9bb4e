"""The project's own check of what stages wrote (`python -m tasks.check -`), which knows the schemas.

A child, since flows import nothing of tasks; and one child for all stages of a run, since to start it costs more than
most checks. It ends with its standard input, so it cannot outlive this process.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock

CHECK_FILE = Path("tasks/check.py")


class Checker:
    """Checks one stage's outs after another; started by the first."""

    def __init__(self, root: Path) -> None:
        self.root, self._log = root, root / "mlruns/logs/check.log"
        self._asking = Lock()
        self._process: subprocess.Popen[str] | None = None

    def problems(self, outs: Sequence[Path]) -> list[str]:
        """One line for each problem; none where the project has no check of its own."""
        if not (self.root / CHECK_FILE).exists():
            return []
        with self._asking:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(json.dumps([str(out) for out in outs]) + "\n")
                process.stdin.flush()
                answer = process.stdout.readline()
            except BrokenPipeError:
                answer = ""
            if answer:
                return json.loads(answer)
            self.stop()
            *_, last = ["it ended without an answer", *self._log.read_text(errors="replace").strip().splitlines()]
            return [f"python -m tasks.check: {last}; see {self._log.relative_to(self.root)}"]

    def stop(self) -> None:
        """End the child; whoever waits for its answer gets none."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(BrokenPipeError), process:  # waits, and closes the pipes
                pass

    def _started(self) -> "subprocess.Popen[str]":
        if self._process is None:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("w") as errors:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tasks.check", "-"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    cwd=self.root,
                    env=os.environ | {"PYTHONUNBUFFERED": "1"},
                    start_new_session=True,  # a Ctrl-C in the terminal is for this process to act on
                    text=True,
                )
        return self._process
