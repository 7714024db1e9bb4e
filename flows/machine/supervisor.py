"""A command as a child that cannot outlive its parent, even one that is killed with `kill -9`.

The parent holds the write end of a pipe to `python -m flows.machine.supervisor`, and nothing else does. When the pipe
ends, for whatever reason, the supervisor asks every descendant of the command to stop, and kills those that still live
a second later. As their subreaper it also finds processes in sessions of their own and processes that lost their parent.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

GRACE_SECONDS = 1.0
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


class Command:
    """The parent's handle on commands that run one after the other under a supervisor.

    `keep` has descriptors of open files that supervisor and command inherit: a lock on such a file lasts as long as any of them.
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

    def wait(self, timeout: float | None = None) -> int | None:
        """The exit status (128 + n after signal n), or None if it still runs after `timeout` seconds."""
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        self._end()
        return 128 - status if status < 0 else status

    def stop(self) -> None:
        """End the command and all that it started, and wait for that (at most a little over GRACE_SECONDS)."""
        self._close()
        self._process.wait()
        self._end()

    def _end(self) -> None:
        """Close the pipe; if the supervisor itself was killed, kill its process group."""
        self._close()
        if self._process.returncode < 0:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()


def main() -> int:
    """Run the commands given as JSON, stop them when standard input ends, return the first status that is not 0."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda *_: _abort())
    threading.Thread(target=_abort_at_end_of_input, daemon=True).start()
    commands, keep = (json.loads(argument) for argument in sys.argv[1:])
    for command in commands:
        status = subprocess.call(command, stdin=subprocess.DEVNULL, pass_fds=keep)
        _stop_descendants()  # background processes would write into outs that are being hashed
        if status:
            return 128 - status if status < 0 else status
    return 0


def _abort_at_end_of_input() -> None:
    os.read(sys.stdin.fileno(), 1)  # sys.stdin's own lock would be held at exit
    _abort()


def _abort() -> None:
    _stop_descendants()
    os._exit(128 + signal.SIGTERM)


def _stop_descendants() -> None:
    for send, seconds in ((psutil.Process.terminate, GRACE_SECONDS), (psutil.Process.kill, GRACE_SECONDS)):
        deadline = time.monotonic() + seconds
        signalled: set[psutil.Process] = set()
        while (alive := _descendants()) and time.monotonic() < deadline:
            for process in alive - signalled:
                try:
                    send(process)
                except psutil.NoSuchProcess:
                    continue
            signalled |= alive
            time.sleep(0.02)


def _descendants() -> set[psutil.Process]:
    def lives(process: psutil.Process) -> bool:
        try:
            return bool(process.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False

    return {process for process in psutil.Process().children(recursive=True) if lives(process)}


if __name__ == "__main__":
    sys.exit(main())
