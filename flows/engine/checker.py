"""Checks of a stage's outs before they may enter the cache: every declared out exists, and the project's own check
passes.

The project's check (`python -m tasks.check -`) knows the schemas. It is a child process, since flows import no stage's
code, and one child serves a whole run, since starting it costs more than most checks. It ends with its standard input,
so it cannot outlive this process.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock

CHECK_FILE = Path("tasks/check.py")


class Checker:
    """Checks one stage's outs after another; the child is started by the first check."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._log = root / "mlruns/logs/check.log"
        self._asking = Lock()
        self._process: subprocess.Popen[str] | None = None

    def problems(self, outs: Sequence[Path]) -> list[str]:
        """One line for each problem; none where the project has no check of its own."""
        if not (self.root / CHECK_FILE).exists():
            return []
        with self._asking:
            process = self._get_or_start_process()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(json.dumps([str(out) for out in outs]) + "\n")
                process.stdin.flush()
                answer = process.stdout.readline()
            except BrokenPipeError:
                answer = ""
            if answer:
                problems: list[str] = json.loads(answer)
                return problems
            self.stop()
            *_, last = ["it ended without an answer", *self._log.read_text(errors="replace").strip().splitlines()]
            return [f"python -m tasks.check: {last}; see {self._log.relative_to(self.root)}"]

    def stop(self) -> None:
        """End the child; a caller that waits for its answer gets none."""
        process = self._process
        self._process = None
        if process is not None:
            process.kill()
            with suppress(BrokenPipeError), process:  # waits, and closes the pipes
                pass

    def _get_or_start_process(self) -> "subprocess.Popen[str]":
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
                    start_new_session=True,  # a Ctrl-C in the terminal must reach this process alone
                    text=True,
                )
        return self._process


def iterate_declared_out_faults(root: Path, outs: Iterable[Path]) -> Iterator[str]:
    """One line for each declared out that is missing, empty, or a JSON file with a number that is not finite."""
    for out in outs:
        name = out.relative_to(root) if out.is_relative_to(root) else out
        if not out.exists():
            yield f"{name}: the command ended without writing it"
        elif not (any(out.iterdir()) if out.is_dir() else out.stat().st_size):
            yield f"{name}: the command left it empty"
        elif out.suffix == ".json" and out.is_file():
            try:
                content = json.loads(out.read_text())
            except ValueError as error:
                yield f"{out.name}: not JSON: {error}"
            else:
                yield from (
                    f"{out.name}: {key}: expected a finite number, got {bad}"
                    for key, bad in _iterate_nonfinite_values(content)
                )


def _iterate_nonfinite_values(value: object, key: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _iterate_nonfinite_values(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _iterate_nonfinite_values(inner, f"{key}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        yield key, value
