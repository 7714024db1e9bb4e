"""A command as a child that cannot outlive its parent, even one that is killed with `kill -9`.

The parent holds the write end of a pipe to `python -m flows.machine.supervisor`, and nothing else does. When the pipe
ends, for whatever reason, the supervisor asks every descendant of the command to stop, and kills those that still live
a second later. As their subreaper it also finds processes in sessions of their own and processes that lost their
parent. It also writes down how much memory the command and all that it started had at most, where PEAK_MEMORY names a
file for that.
"""

import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from psutil import Process

GRACE_SECONDS = 1.0
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
PEAK_MEMORY = "POSTTRAIN_PEAK_MEMORY"  # variable: the file for the bytes
SAMPLE_SECONDS = 0.2  # between two looks at the memory of several processes
STOPS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}  # what asks a supervisor to end


class Command:
    """The parent's handle on commands that run one after the other under a supervisor.

    `keep` has descriptors of open files that supervisor and command inherit: a lock on such a file lasts as long as any
    of them.
    """

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        cwd: Path,
        environ: Mapping[str, str],
        log: Path,
        keep: Sequence[int] = (),
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, json.dumps(commands), json.dumps(list(keep))],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=dict(environ),
                pass_fds=keep,
                start_new_session=True,  # a Ctrl-C in the terminal must reach the parent alone
            )
        self._closing = threading.Lock()
        self._exit = _open_process_descriptor(self._process.pid)

    def wait(self, timeout: float | None = None) -> int | None:
        """The exit status (128 + n after signal n), or None if it still runs after `timeout` seconds."""
        pidfd = self._exit
        if pidfd is not None and timeout is not None:  # Popen.wait would look every 50 ms only
            ended = select.poll()
            ended.register(pidfd)
            if not ended.poll(timeout * 1000):
                return None
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        self._close_and_kill_group()
        return 128 - status if status < 0 else status

    def stop(self) -> None:
        """End the command and all that it started, and wait for that (at most a little over GRACE_SECONDS)."""
        self._close_pipe()
        self._process.wait()
        self._close_and_kill_group()

    def _close_and_kill_group(self) -> None:
        """Close the pipe; if the supervisor itself was killed, kill its process group."""
        self._close_pipe()
        with self._closing:
            pidfd = self._exit
            self._exit = None
        if pidfd is not None:
            os.close(pidfd)
        if self._process.returncode < 0:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _close_pipe(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()


def _open_process_descriptor(process: int) -> int | None:
    """A descriptor that can be read when the process has ended; None where there are none, before Linux 5.3."""
    try:
        return os.pidfd_open(process)
    except (AttributeError, OSError):
        return None


def main() -> int:
    """Run the commands given as JSON, stop them when standard input ends, return the first status that is not 0."""
    become_child_subreaper()
    stop_descendants_on_signals()
    stop_descendants_when_closed(sys.stdin.fileno())
    commands, keep = (json.loads(argument) for argument in sys.argv[1:])
    memory = PeakMemory(os.environ.get(PEAK_MEMORY))
    for command in commands:
        status = subprocess.call(command, stdin=subprocess.DEVNULL, pass_fds=keep)
        stop_descendants()  # background processes would write into outs that are being hashed
        memory.write()
        if status:
            return 128 - status if status < 0 else status
    return 0


class PeakMemory:
    """The most resident memory that all descendants of this process have together, as its samples and the kernel have
    it.

    The kernel knows the peak of the largest single process to the page; only of several at once, samples may miss a
    short one. Pages that processes share count for each, as everywhere where resident memory is added up. Nothing is
    done without a file.
    """

    def __init__(self, file: str | None) -> None:
        self._file = file
        self._peak = 0
        if file and _can_list_children():
            threading.Thread(target=self._sample_memory_forever, daemon=True).start()

    def write(self) -> None:
        """Write the peak so far, in bytes."""
        if self._file:
            largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
            with suppress(OSError):  # nothing depends on it
                Path(self._file).write_text(str(max(self._peak, largest)))

    def _sample_memory_forever(self) -> None:
        while True:
            self._peak = max(self._peak, sum(map(_measure_resident_memory, _list_descendant_pids(os.getpid()))))
            time.sleep(SAMPLE_SECONDS)


def _can_list_children() -> bool:
    """Whether this is Linux with the part of /proc that names the children of processes."""
    return Path(f"/proc/self/task/{os.getpid()}/children").exists()


def _list_descendant_pids(process: int) -> list[int]:
    """The descendants of a process."""
    descendants = list[int]()
    todo = [process]
    while todo:
        for thread in _list_folder(Path(f"/proc/{todo.pop()}/task")):
            with suppress(OSError, ValueError):  # it has ended
                children = [int(word) for word in (thread / "children").read_text().split()]
                descendants += children
                todo += children
    return descendants


def _list_folder(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # it has ended
        return []


def _measure_resident_memory(process: int) -> int:
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):  # it has ended
        return 0
    return pages * resource.getpagesize()


def become_child_subreaper() -> None:
    """Have descendants that lose their parent become children of this process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def stop_descendants_on_signals() -> None:
    """On a signal that asks this process to end, stop all that it started first."""
    for number in STOPS:
        signal.signal(number, lambda *_: _stop_descendants_and_exit())


def stop_descendants_when_closed(file: int) -> None:
    """Do the same when the other end of this pipe or socket is closed, which happens to a killed parent too."""

    def wait() -> None:
        with suppress(OSError):  # a socket's end may be an error
            os.read(file, 1)  # not through sys.stdin, whose lock would be held at exit
        _stop_descendants_and_exit()

    threading.Thread(target=wait, daemon=True).start()


def _stop_descendants_and_exit() -> None:
    stop_descendants()
    os._exit(128 + signal.SIGTERM)


def stop_descendants() -> None:
    """Ask every descendant to stop, and kill those that still live a second later."""
    # The import below takes longer than a short command. A look may miss a process while another one ends, so that two
    # must agree.
    if _can_list_children() and not any(_list_descendant_pids(os.getpid()) for _ in range(2)):
        return
    import psutil

    for send, seconds in ((psutil.Process.terminate, GRACE_SECONDS), (psutil.Process.kill, GRACE_SECONDS)):
        deadline = time.monotonic() + seconds
        signalled: set[Process] = set()
        while (alive := _list_live_descendants()) and time.monotonic() < deadline:
            for process in alive - signalled:
                try:
                    send(process)
                except psutil.NoSuchProcess:
                    continue
            signalled |= alive
            time.sleep(0.02)


def _list_live_descendants() -> "set[Process]":
    import psutil

    def lives(process: "Process") -> bool:
        try:
            return bool(process.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False

    return {process for process in psutil.Process().children(recursive=True) if lives(process)}


if __name__ == "__main__":
    sys.exit(main())
