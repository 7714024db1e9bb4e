"""The faults that benchmarks/worker_faults.py brings about, each at a moment that a random generator chooses."""

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import psutil

from benchmarks.worker_fault_site import LIMIT, Note, Site, list_descendant_processes, wait_for_condition

SOON = 60.0  # seconds in which a stage that is to be disturbed must have begun to write, and others are noticed
STOPPED = (25.0, 60.0)  # seconds that something is stopped with SIGSTOP, or that the remote is away


@dataclass
class Trial:
    """One trial under way: `run` is the coordinator; `noticed` the seconds until it knew of the fault, if it needs to
    know.
    """

    site: Site
    transport: str
    rng: random.Random
    run: "subprocess.Popen[bytes]"
    before: int  # notes in the journal before it
    noticed: float | None = None
    stages: tuple[str, ...] = ("left",)
    faults: list[str] = field(default_factory=list)

    def notes(self) -> list[Note]:
        """What the commands of this trial have written."""
        return self.site.notes()[self.before :]

    def wait_until_writing(self) -> str:
        """Wait until a command has written a random number of its lines; the worker that runs it."""
        line = self.rng.randint(1, 22)
        wait_for_condition(lambda: any(note.number >= line for note in self.notes()), LIMIT, "a stage that writes")
        return str(wait_for_condition(self.site.find_busy_worker, 5.0, "the worker of the stage"))

    def count_killed_runs(self) -> int:
        """How many runs of stages are marked as killed there."""
        database = self.site.one / "mlruns/mlflow.db"
        if not database.exists():
            return 0
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as records:
            asked = "SELECT COUNT(*) FROM runs WHERE status = 'KILLED' AND name IN ('left', 'right')"
            with contextlib.suppress(sqlite3.OperationalError):
                return int(records.execute(asked).fetchone()[0])
        return 0

    def record_notice_seconds(self, before: int, seconds: float = SOON) -> None:
        """Measure how long it takes until MLflow has one more killed run."""
        began = time.monotonic()
        with contextlib.suppress(TimeoutError):
            wait_for_condition(lambda: self.count_killed_runs() > before, seconds, "")
            self.noticed = time.monotonic() - began
            return
        self.faults.append(f"no attempt was marked as killed within {seconds:.0f} s")


def kill_worker(trial: Trial) -> None:
    """The worker's process is killed with -9"""
    name = trial.wait_until_writing()
    before = trial.count_killed_runs()
    trial.site.workers.pop(name).kill()
    trial.record_notice_seconds(before)


def kill_attempt(trial: Trial) -> None:
    """The attempt's process alone is killed with -9"""
    name = trial.wait_until_writing()
    before = trial.count_killed_runs()
    for process in trial.site.attempts(name):
        process.kill()
    trial.record_notice_seconds(before)


def suspend_worker(trial: Trial) -> None:
    """The worker's process alone is stopped and goes on later"""
    name = trial.wait_until_writing()
    _suspend_and_resume(trial, [psutil.Process(trial.site.workers[name].pid)], lost=False)


def suspend_attempt(trial: Trial) -> None:
    """The attempt's process alone is stopped and goes on later"""
    name = trial.wait_until_writing()
    _suspend_and_resume(trial, trial.site.attempts(name), lost=True)


def suspend_worker_tree(trial: Trial) -> None:
    """Worker, attempt and command are stopped and go on later"""
    name = trial.wait_until_writing()
    worker = trial.site.workers[name].pid
    _suspend_and_resume(trial, [psutil.Process(worker), *list_descendant_processes(worker)], lost=True)


def _suspend_and_resume(trial: Trial, processes: list[psutil.Process], lost: bool) -> None:
    before = trial.count_killed_runs()
    began = time.monotonic()
    seconds = trial.rng.uniform(*STOPPED)
    for process in processes:
        process.suspend()
    try:
        if lost:
            trial.record_notice_seconds(before, seconds=max(seconds, 45.0))
        time.sleep(max(began + seconds - time.monotonic(), 0.0))
    finally:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def kill_and_restart_coordinator(trial: Trial) -> None:
    """The coordinator is killed with -9 and started again"""
    trial.wait_until_writing()
    pids = {note.pid for note in trial.notes()}
    os.killpg(trial.run.pid, signal.SIGKILL)
    trial.run.wait()
    time.sleep(trial.rng.uniform(0.0, 3.0))
    trial.run = trial.site.run(*trial.stages)
    trial.run.wait(LIMIT)
    if trial.transport == "clone" and {note.pid for note in trial.notes()} != pids:
        trial.faults.append("the running attempt was not adopted")


def interrupt_and_restart_coordinator(trial: Trial) -> None:
    """The coordinator is stopped with Ctrl-C and started again"""
    trial.wait_until_writing()
    os.kill(trial.run.pid, signal.SIGINT)
    if trial.run.wait(LIMIT) != 130:
        trial.faults.append(f"exit status {trial.run.returncode} after Ctrl-C")
    trial.run = trial.site.run(*trial.stages)


def kill_and_restart_server(trial: Trial) -> None:
    """Prefect's server is killed with -9 and started again"""
    trial.wait_until_writing()
    site = trial.site
    assert site.server is not None
    os.killpg(site.server.pid, signal.SIGKILL)
    site.server.wait()
    time.sleep(trial.rng.uniform(0.0, 20.0))
    site.start_server()


def stop_worker_by_signal(trial: Trial) -> None:
    """The worker is stopped with Ctrl-C or SIGTERM"""
    name = trial.wait_until_writing()
    before = trial.count_killed_runs()
    worker = trial.site.workers.pop(name)
    worker.send_signal(trial.rng.choice([signal.SIGINT, signal.SIGTERM]))
    trial.record_notice_seconds(before)
    with contextlib.suppress(subprocess.TimeoutExpired):
        worker.wait(SOON)
        return
    trial.faults.append("the worker does not end")


def move_remote_away(trial: Trial) -> None:
    """DVC's remote is away when the outs are sent"""
    trial.wait_until_writing()
    away = trial.site.remote.with_name("away")
    trial.site.remote.rename(away)
    time.sleep(trial.rng.uniform(*STOPPED))
    away.rename(trial.site.remote)


def fill_remote(trial: Trial) -> None:
    """DVC's remote is full when the outs are sent"""
    trial.wait_until_writing()
    remote = trial.site.remote
    held = sum(2**13 + file.stat().st_size for file in remote.rglob("*"))
    kept = remote.with_name("kept")
    shutil.copytree(remote, kept)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={held + 2**20}", "tmpfs", remote], check=True)
    try:
        shutil.copytree(kept, remote, dirs_exist_ok=True)
        time.sleep(trial.rng.uniform(*STOPPED))
        subprocess.run(["mount", "-o", f"remount,size={held + 2**28}", remote], check=True)
        trial.run.wait(LIMIT)
        shutil.copytree(remote, kept, dirs_exist_ok=True)
    finally:
        subprocess.run(["umount", "--lazy", remote], check=True)
        shutil.rmtree(remote)
        kept.rename(remote)


def kill_attempt_during_push(trial: Trial) -> None:
    """The attempt is killed with -9 while it sends an out"""
    trial.wait_until_writing()
    before = trial.count_killed_runs()
    partial: Callable[[], list[Path]] = lambda: [*trial.site.remote.glob("files/md5/*/.*")]  # noqa: E731
    old = {*partial()}
    wait_for_condition(lambda: {*partial()} - old, LIMIT, "an object on its way")
    for process in trial.site.attempts():
        process.kill()
    trial.record_notice_seconds(before)


def run_with_torn_input(trial: Trial) -> None:
    """An input in the remote is torn"""
    trial.run.wait(LIMIT)


def damage_pushed_out(trial: Trial) -> None:
    """An out in the remote is torn before the coordinator takes it"""
    trial.wait_until_writing()
    known = {*trial.site.remote.glob("files/md5/*/*")}
    tear = trial.rng.random() < 0.5

    def new() -> list[Path]:
        found = {*trial.site.remote.glob("files/md5/*/*")} - known
        return [one for one in found if not one.name.startswith(".") and one.stat().st_size > 2**20]

    for file in wait_for_condition(new, LIMIT, "an object that arrived"):
        damage_file(file, tear)


def run_two_coordinators(trial: Trial) -> None:
    """Two coordinators in two clones ask for one device"""
    other = trial.site.folder / "other"
    second = trial.site.run(*trial.stages, repository=other, log="other")
    trial.run.wait(LIMIT)
    if second.wait(LIMIT):
        trial.faults.append(f"the other coordinator: exit status {second.returncode}")
    spans: dict[int, list[float]] = {}
    for note in trial.notes():
        spans.setdefault(note.pid, []).append(note.time)
    times = sorted((min(moments), max(moments)) for moments in spans.values())
    if any(later[0] < earlier[1] for earlier, later in pairwise(times)):
        trial.faults.append("two stages used the device at once")
    if len(times) < 2:
        trial.faults.append("only one of the two ran its stage")


def run_two_stages(trial: Trial) -> None:
    """Two workers run two stages at once"""
    trial.run.wait(LIMIT)
    if len({note.pid for note in trial.notes()}) != 2:
        trial.faults.append("expected two commands")


def damage_file(file: Path, tear: bool) -> None:
    """Cut the file's end off, or change a byte in its middle."""
    content = file.read_bytes()
    half = len(content) // 2
    file.chmod(0o644)
    file.write_bytes(content[:half] if tear else content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :])


def damage_remote_input(site: Site, rng: random.Random) -> None:
    """Damage the seed's large file in the remote, so that the worker cannot take it from there; clones forget
    theirs.
    """
    for clone in ("two", "three"):
        shutil.rmtree(site.folder / clone / ".dvc/cache", ignore_errors=True)
    for file in site.remote.glob("files/md5/*/*"):
        if file.stat().st_size == 10_000:
            damage_file(file, rng.random() < 0.5)


BOTH = ("shared", "clone")
CLONE = ("clone",)
# Name -> what happens, the transports, and whether the attempt is lost, so that a second one must be made.
FAULTS: Mapping[str, tuple[Callable[[Trial], None], tuple[str, ...]]] = {
    "worker killed": (kill_worker, BOTH),
    "attempt killed": (kill_attempt, BOTH),
    "worker stopped": (suspend_worker, BOTH),
    "attempt stopped": (suspend_attempt, BOTH),
    "tree stopped": (suspend_worker_tree, BOTH),
    "worker ended": (stop_worker_by_signal, BOTH),
    "coordinator killed": (kill_and_restart_coordinator, BOTH),
    "coordinator interrupted": (interrupt_and_restart_coordinator, BOTH),
    "server killed": (kill_and_restart_server, BOTH),
    "remote away": (move_remote_away, CLONE),
    "remote full": (fill_remote, CLONE),
    "push killed": (kill_attempt_during_push, CLONE),
    "input torn": (run_with_torn_input, CLONE),
    "out torn": (damage_pushed_out, CLONE),
    "two coordinators": (run_two_coordinators, BOTH),
    "two stages": (run_two_stages, BOTH),
}
LARGE = {"push killed": 6_000_000, "out torn": 3_000_000, "remote full": 300_000}  # times a short line
