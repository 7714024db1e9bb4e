"""`posttrain run` as a process of its own, which benchmarks/faults.py signals and runs beside others."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fault_runs import ROOT, Toy, rerun_and_find_faults, write_stage_values
from flows.orchestration import server

LIMIT = 120.0  # seconds, for any command


@dataclass
class Command:
    """`posttrain run` on the pipeline, as a process of its own."""

    template: Path
    seconds: float  # of an undisturbed run

    @classmethod
    def prepared(cls, folder: Path) -> "Command":
        """A pipeline in which nothing has run and each stage takes a moment."""
        toy = Toy.prepared(folder, "first")
        write_stage_values(toy.template, seconds=0.3)
        one = cls(toy.template, 0.0)
        with toy.copy() as root, stop_server_at_end(root):
            began = time.monotonic()
            ended = one.start(root, "run", "d").wait(LIMIT)
            one.seconds = time.monotonic() - began
            assert ended == 0
        return one

    def start(self, root: Path, *words: str, module: str = "flows.cli") -> "subprocess.Popen[bytes]":
        """A command in a session of its own."""
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        with (root.parent / "command.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module, *words],
                cwd=root,
                env=environ,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run_with_signal(self, kind: str, moment: float, which: float, at_server: bool = False) -> list[str]:
        """Send a signal to one process of a run after this share of its usual time; then make a plain run.

        With `at_server` it goes to Prefect's server or to the process that keeps it, once there is one; the run may
        then fail with a line.
        """
        with Toy(self.template).copy() as root, stop_server_at_end(root):
            log = root.parent / "command.log"
            log.unlink(missing_ok=True)
            run = self.start(root, "run", "d")
            time.sleep(moment * self.seconds)
            tree = [run.pid, *list_descendants(run.pid)]
            while at_server and run.poll() is None and not any(map(is_prefect_server, tree)):
                time.sleep(0.05)
                tree = [run.pid, *list_descendants(run.pid)]
            targets = [pid for pid in tree if is_prefect_server(pid)] if at_server else tree
            with contextlib.suppress(ProcessLookupError, IndexError):
                os.kill(targets[int(which * len(targets))], getattr(signal, kind))
            try:
                code = run.wait(LIMIT)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                return ["it does not end"]
            faults = [f"exit {code}"] if at_server and code not in (0, 1) else []
            faults += ["it prints a traceback"] if "Traceback" in log.read_text() else []
            return faults + find_orphan_processes(tree, root) + rerun_and_find_faults(root)

    def beside(self, other: str, later: float) -> list[str]:
        """Run another command on the same repository at the same time; then make a plain run."""
        with Toy(self.template).copy() as root, stop_server_at_end(root):
            run = self.start(root, "run", "d")
            time.sleep(later * self.seconds)
            words = {"run": ["run", "d"], "repro": ["repro", "--quiet"], "gc": ["gc", "--quiet", "-w", "-f"]}[other]
            second = self.start(root, *words, module="flows.cli" if other == "run" else "dvc")
            try:
                ended = run.wait(LIMIT), second.wait(LIMIT)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                os.killpg(second.pid, signal.SIGKILL)
                return ["they do not end"]
            codes = {"run": {0, 2}, "repro": {0, 1, 255}, "gc": {0, 1, 255}}[other]
            odd = [f"exit {code}" for code, fine in zip(ended, ({0, 1, 2}, codes), strict=True) if code not in fine]
            return odd + rerun_and_find_faults(
                root, lineage=other != "repro"
            )  # real stages record themselves under plain dvc, these do not


@contextlib.contextmanager
def stop_server_at_end(root: Path) -> Iterator[None]:
    """End Prefect's server, which stays for some minutes after a run, when the trial has ended."""
    try:
        yield
    finally:
        server.stop_server(root)


def is_prefect_server(pid: int) -> bool:
    """Whether this process is Prefect's server or keeps it."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:  # it has ended
        return False
    return b"flows.orchestration.server_keeper" in words or (b"prefect" in words and b"server" in words)


def list_descendants(pid: int) -> list[int]:
    """All descendants of the process."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = []
    new = {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new}
        found += sorted(new)
    return found


def find_orphan_processes(tree: Sequence[int], root: Path, patience: float = 10.0) -> list[str]:
    """Processes that still work in the repository after the command has ended; not the one that writes its records."""
    deadline = time.monotonic() + patience
    while True:
        alive = []
        for pid in tree[1:]:
            with contextlib.suppress(OSError):
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                recorder = b"flows.journal_replayer" in Path(f"/proc/{pid}/cmdline").read_bytes()
                if (
                    state != "Z"
                    and not recorder
                    and not is_prefect_server(pid)
                    and _is_link_to(Path(f"/proc/{pid}/cwd"), root)
                ):
                    alive.append(pid)
        if not alive or time.monotonic() > deadline:
            return [f"still at work: {len(alive)} processes"] if alive else []
        time.sleep(0.1)


def wait_until_repository_idle(root: Path, patience: float = 60.0) -> None:
    """Wait until no process works in the repository, the one that writes records included; TimeoutError if one goes
    on.
    """
    deadline = time.monotonic() + patience
    while at_work := [place for place in Path("/proc").glob("[0-9]*/cwd") if _is_link_to(place, root)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"still at work in {root}: {len(at_work)} processes")
        time.sleep(0.1)


def _is_link_to(place: Path, folder: Path) -> bool:
    try:
        return place.readlink() == folder
    except OSError:  # it has ended, or is another user's
        return False
