"""Runs a stage's command as `dvc repro` would, under the supervisor, and checks what it made."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from flows.engine.checker import Checker, iterate_declared_out_faults
from flows.engine.stage_types import Grant
from flows.machine.supervisor import PEAK_MEMORY, Command
from flows.machine.warm_start import NEVER_BEGAN, WarmCommand, WarmStarts
from tasks.common.errors import WAITING

if TYPE_CHECKING:
    from flows.engine.dvc_closure import PipelineStage

LOOK_SECONDS = 0.25  # between two looks at a running command's progress
SHELLS = (
    "sh",
    "bash",
    "dash",
    "ash",
    "zsh",
    "ksh",
    "mksh",
    "fish",
)  # run what `-c` gives them as the stages are written
# bytes of a log that are searched for its last line; characters shown of it
TAIL = 100_000
SHOWN = 300
Progress = Callable[[int, int, float, str], None]  # step, total, seconds since the start, `reward 0.53` or ""


class StageFailed(Exception):
    """A stage failed; the message is one line for a person."""


class StageWaiting(Exception):
    """A stage cannot go on until people have judged more; the message is one line that says how much."""


class WorkerLost(Exception):
    """An attempt on a worker ended, but not because the stage failed: another may be made."""


class CommandRunner:
    """Runs commands of the repository at `root` and can stop them all. Stages start cold without `warm`."""

    def __init__(self, root: Path, warm: WarmStarts | None = None) -> None:
        self.root = root
        self._warm = warm
        self._checker = Checker(root)
        self._changing = threading.Lock()
        self._stopping = False
        self._commands: set[Command | WarmCommand] = set()

    def stop(self) -> None:
        """Stop every command that runs, and start no more."""
        with self._changing:
            self._stopping = True
            commands = list(self._commands)
        if self._warm is not None:
            self._warm.close()
        stops = [threading.Thread(target=stop) for stop in (self._checker.stop, *(each.stop for each in commands))]
        for thread in stops:
            thread.start()
        for thread in stops:
            thread.join()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    def run(self, stage: "PipelineStage", log: Path, grant: Grant, tell: Progress) -> None:
        """Run the stage's command with its output in `log`; StageFailed unless it ends well with valid outs,
        StageWaiting if it waits for people.
        """
        from dvc.stage.run import prepare_kwargs

        variables = {**prepare_kwargs(stage)["env"], **grant.environ}
        self.call(str(stage.name), stage.cmd, Path(stage.wdir), log, replace(grant, environ=variables), tell)
        self.check(stage, log)

    def call(
        self,
        name: str,
        cmd: str | list[str],
        folder: Path,
        log: Path,
        grant: Grant,
        tell: Progress,
    ) -> None:
        """Run a stage's `cmd` in `folder` with the granted variables and no others but its own; StageFailed unless it
        ends well.
        """
        from dvc.stage.run import _enforce_cmd_list, _make_cmd

        progress = log.with_suffix(".progress")
        log.parent.mkdir(parents=True, exist_ok=True)
        for file in (log, progress):
            file.write_bytes(b"")
        memory = log.with_suffix(".memory")
        memory.unlink(missing_ok=True)
        variables = {**grant.environ, "DVC_STAGE": name, "POSTTRAIN_PROGRESS": str(progress), "PYTHONUNBUFFERED": "1"}
        variables[PEAK_MEMORY] = str(memory)
        # Threads that wait for each other actively took 30 times as long where something else needed a core (LOG.md).
        variables.setdefault("OMP_WAIT_POLICY", "passive")
        variables["PYTHONIOENCODING"] = "utf-8"  # a log is no terminal, whose letters may be fewer
        variables.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # transformers' too: a log is no terminal
        variables["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), variables.get("PATH", os.defpath)])
        look = _Reports(progress, tell).look

        commands = [[*grant.launcher, *_make_cmd(get_shell_path(), command)] for command in _enforce_cmd_list(cmd)]

        def cold() -> Command:
            return Command(commands, folder, variables, log, grant.keep)

        def warm() -> Command | WarmCommand:
            started = self._warm.start(cmd, folder, variables, log, grant.keep) if self._warm is not None else None
            if started is None and self._warm is not None and len(commands) == 1:
                started = self._warm.program(commands[0], folder, variables, log, grant.keep)
            return cold() if started is None else started

        status = self._run_until_exit(cold if grant.launcher else warm, look)
        if status == NEVER_BEGAN:
            status = self._run_until_exit(cold, look)
        if status == WAITING:
            raise StageWaiting(_read_last_log_line(log) or "waiting for people")
        if status:
            raise StageFailed(f"{_read_last_log_line(log) or 'the command failed'} (exit status {status})")

    def check(self, stage: "PipelineStage", log: Path) -> None:
        """StageFailed unless the outs that the command left are valid; what is wrong with them goes into the log
        too.
        """
        made = [Path(out.fs_path) for out in stage.outs]
        problems = [*iterate_declared_out_faults(self.root, made)] or self._checker.problems(made)
        if self._stopping:
            raise StageFailed("stopped")
        if problems:
            with log.open("a") as file:
                file.writelines(f"{problem}\n" for problem in problems)
            raise StageFailed(problems[0])

    def _run_until_exit(self, start: Callable[[], Command | WarmCommand], look: Callable[[float], None]) -> int:
        """The exit status of what `start` starts; StageFailed if it was stopped."""
        began = time.monotonic()
        with self._changing:
            if self._stopping:
                raise StageFailed("stopped")
            command = start()
            self._commands.add(command)
        try:
            while (status := command.wait(LOOK_SECONDS)) is None:
                look(time.monotonic() - began)
        finally:
            command.stop()
            with self._changing:
                self._commands.discard(command)
        if self._stopping:
            raise StageFailed("stopped")
        return status


def get_shell_path() -> str:
    """What runs a command: the account's shell, as for DVC, if it is one that runs commands; nologin, for one, is
    none.
    """
    login = os.environ.get("SHELL", "")
    return login if Path(login).name in SHELLS and os.access(login, os.X_OK) else "/bin/sh"


class _Reports:
    """Passes on each new last line of a progress file once."""

    def __init__(self, file: Path, tell: Progress) -> None:
        self.file = file
        self.tell = tell
        self.last = b""

    def look(self, seconds: float) -> None:
        *_, newest = [b"", *self.file.read_bytes().rpartition(b"\n")[0].splitlines()]
        if newest != self.last:
            self.last = newest
            report = json.loads(newest)
            self.tell(report["step"], report["total"], seconds, report.get("measure", ""))


def _read_last_log_line(log: Path) -> str:
    """The last line that is not empty, shortened and without control characters."""
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - TAIL, 0))
        lines = file.read().decode(errors="replace").splitlines()
    printable = ("".join(char for char in line if char.isprintable()).strip() for line in reversed(lines))
    line = next(filter(None, printable), "")
    return line if len(line) <= SHOWN else line[: SHOWN - 4] + " ..."
