"""Stages of the default flows at preset tiny, run in a clone of this repository again and again, each in a fork of one
process.

So the packages that stages import are imported once, and a run takes little more than what the stage itself does.
"""

import hashlib
import importlib
import json
import os
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvc.repo import Repo

ROOT = Path(__file__).parents[1]
FLOWS = ("offline_report", "agents_report", "report")  # the last stage of each
OURS = ("tasks", "flows", "benchmarks", "__main__", "__mp_main__")
ENDS = ("failed", "took too long")  # of a stage without outs


@dataclass(frozen=True)
class Stage:
    """A stage, or a branch of one, with what replaces the braces in its command still to be looked up by itself."""

    name: str
    command: list[str]  # module and flags
    outs: list[str]


def prepare_tiny_clone(clone: Path) -> list[Stage]:
    """Run the flows at preset tiny in a clone of this commit, where they have not run there; their stages in order."""
    if not clone.exists():
        subprocess.run(["git", "clone", "--quiet", "--local", ROOT, clone], check=True)
        subprocess.run([Path(sys.executable).parent / "posttrain", "preset", "tiny"], cwd=clone, check=True)
        text = (clone / "dvc.yaml").read_text()
        for old, new in (("--threads 2", "--threads 1"), ("processes: 2", "processes: 1")):
            text = text.replace(old, new)
        (clone / "dvc.yaml").write_text(text)
    subprocess.run(["git", "checkout", "--quiet", "--", "tasks"], cwd=clone, check=True)  # after a run that was stopped
    shutil.rmtree(clone / ".earlier", ignore_errors=True)
    sys.dont_write_bytecode = True  # an edited file would leave its own
    ordered = list_stages_in_order(clone)
    for stage in ordered:
        if (
            not all((clone / out).exists() for out in stage.outs)
            and (end := run_stage_with_line_trace(stage, clone, 600)[0]) in ENDS
        ):
            raise RuntimeError(f"{stage.name}: {end}")
    return ordered


def list_stages_in_order(clone: Path) -> list[Stage]:
    """The stages that the flows need, each after those whose outs it reads; without `code`, whose files would forbid
    edits.
    """
    with Repo(str(clone)) as repo:
        pipeline = [stage for stage in repo.index.stages if stage.name != "code"]
    ordered: dict[str, Stage] = {}

    def add(stage: Any) -> None:
        if stage.name in ordered:
            return
        deps = [Path(dep.fs_path) for dep in stage.deps]
        for other in pipeline:
            if other is not stage and any(
                _do_paths_overlap(Path(out.fs_path), dep) for out in other.outs for dep in deps
            ):
                add(other)
        outs = [Path(out.fs_path).relative_to(clone).as_posix() for out in stage.outs]
        ordered[stage.name] = Stage(stage.name, shlex.split(stage.cmd)[2:], outs)

    for stage in pipeline:
        if stage.name in FLOWS:
            add(stage)
    return [*ordered.values()]


def _do_paths_overlap(path: Path, other: Path) -> bool:
    return path.is_relative_to(other) or other.is_relative_to(path)


def run_stage_and_hash_outs(stage: Stage, clone: Path, seconds: float) -> str:
    """Run the stage; the hash of its outs, or one of ENDS. The outs that the clone had before stay, since other stages
    read them.
    """
    earlier = clone / ".earlier"
    for number, out in enumerate(stage.outs):
        earlier.mkdir(exist_ok=True)
        (clone / out).rename(earlier / str(number))
    result = _run_stage_in_fork(stage, clone, seconds)
    for number, out in enumerate(stage.outs):
        _remove_path(clone / out)
        (clone / out).parent.mkdir(parents=True, exist_ok=True)
        (earlier / str(number)).rename(clone / out)
    return result


def run_stage_with_line_trace(stage: Stage, clone: Path, seconds: float) -> tuple[str, dict[str, set[int]]]:
    """Run the stage; the hash of its outs, or one of ENDS, and path -> the lines that it executes.

    The outs stay, and the packages that the stage imports stay imported, so that the next run need not do it.
    """
    seen = clone / ".seen"
    seen.write_text("[[], []]")
    for out in stage.outs:
        _remove_path(clone / out)
    digest = _run_stage_in_fork(stage, clone, seconds, seen)
    lines, modules = json.loads(seen.read_text())
    for name in modules:
        if name not in sys.modules:
            with suppress(Exception):
                importlib.import_module(name)
    by_path: dict[str, set[int]] = {}
    for path, number in lines:
        if not path.endswith(".py"):
            continue  # a template
        by_path.setdefault(f"tasks/{path}", set()).add(number)
    return digest, by_path


def _run_stage_in_fork(stage: Stage, clone: Path, seconds: float, seen: Path | None = None) -> str:
    """Run the stage in a fork of this process; the hash of its outs, or one of ENDS."""
    shutil.rmtree(clone / "mlruns", ignore_errors=True)  # with the checkpoints of a run that was ended
    for out in stage.outs:
        (clone / out).parent.mkdir(parents=True, exist_ok=True)
    child = os.fork()
    if not child:
        _run_stage_and_exit(stage, clone, seen)
    status = _wait_and_kill_process(child, seconds)
    return "took too long" if status is None else "failed" if status else _hash_outs(clone, stage.outs)


def _wait_and_kill_process(child: int, seconds: float) -> int | None:
    """The exit status of a process, which is ended with all that it started; None where it takes longer."""
    end = time.monotonic() + seconds
    ended = 0, 0
    while not ended[0] and time.monotonic() < end:
        time.sleep(0.01)
        ended = os.waitpid(child, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not ended[0]:
        os.waitpid(child, 0)
    return ended[1] if ended[0] else None


def _remove_path(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _run_stage_and_exit(stage: Stage, clone: Path, seen: Path | None) -> None:
    """Be the stage's process, with the clone's modules in the place of this checkout's."""
    status = 1
    with suppress(BaseException):
        os.setsid()
        silent = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(silent, number)
        os.chdir(clone)
        os.environ |= {"DVC_STAGE": stage.name, "POSTTRAIN_RECORDS": f"{clone}/.records", "PYTHONPATH": str(clone)}
        sys.path.insert(0, str(clone))
        for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
            del sys.modules[name]
        sys.argv = stage.command[:]
        executed: set[tuple[str, int]] = set()
        if seen:
            _record_executed_lines(f"{clone}/tasks/", executed)
        try:
            runpy.run_module(stage.command[0], run_name="__main__", alter_sys=True)
            status = 0
        except SystemExit as ended:
            status = int(bool(ended.code))
        finally:
            sys.settrace(None)
            if seen:
                modules = [name for name in sys.modules if name.partition(".")[0] not in OURS]
                seen.write_text(json.dumps([sorted(executed), modules]))
    os._exit(status)


def _record_executed_lines(folder: str, executed: set[tuple[str, int]]) -> None:
    """Note each line that this thread executes of files in the folder."""

    def enter(frame: Any, _event: str, _argument: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(folder) else None

    def line(frame: Any, event: str, _argument: Any) -> Any:
        if event == "line":
            executed.add((frame.f_code.co_filename.removeprefix(folder), frame.f_lineno))
        return line

    sys.settrace(enter)


def _hash_outs(clone: Path, outs: list[str]) -> str:
    total = hashlib.sha256()
    for out in outs:
        path = clone / out
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        for file in files:
            content = file.read_bytes() if file.exists() else b"missing"
            total.update(f"{file.relative_to(clone)} {len(content)} ".encode() + content)
    return total.hexdigest()
