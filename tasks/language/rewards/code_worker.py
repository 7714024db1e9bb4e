"""The process that runs a policy's programs against the tests of their problems; run as a module, it judges a job at a
time.

Three kinds of processes, so that none has in its memory what it should not know:

- the examiner, `main`: reads jobs, starts the others, measures time, compares what a program printed with what it
  should;
- the runner, forked from it before it has read a job: forks each program's process, which locks itself in
  (code_lock.py) before it runs. No program's memory holds a test or an expected output, of this job or an earlier one;
- the tests of a job, where they are code: forked from the examiner, locked in as well, they call the program by
  code_calls.py.
"""

import json
import os
import re
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tasks.language.rewards import code_program
from tasks.language.rewards.code_calls import Channel

READY = "ready"
RIGHT = "right"
WRONG = "wrong"
NUMBER = re.compile(r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d{1,3})?")
THREADS = 64  # that a program may have at a time: others need threads too, and no limit of the kernel's counts them
OFTEN = 0.01  # seconds between two counts
# times the limit of processor time, plus 10 seconds: how long a program may take that waits for what never comes
WALL = 10
# Tried before any job: right only where each of the acts is refused. It stops at the first that is not.
CANARY = """
import os, socket, threading
def refused(act):
    try:
        act()
    except (OSError, MemoryError):
        return True
acts = [lambda: open("/etc/passwd"), lambda: open("/dev/null", "w"), lambda: os.listdir("/"), socket.socket, os.fork, os.pipe,
        lambda: os.kill(os.getppid(), 0), lambda: os.execv("/bin/true", ["true"]), lambda: bytearray(1 << 40)]
def locked():
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    return all(map(refused, acts))
"""  # noqa: E501


class ProgramRunner:
    """The process that starts programs, as the examiner sees it."""

    def __init__(self, seconds: int) -> None:
        self.control, theirs = socket.socketpair()
        if not os.fork():
            with suppress(KeyboardInterrupt):
                self.control.close()
                _run_requested_programs(theirs, seconds)
            os._exit(0)
        theirs.close()

    def start(self, channel: int, stdin: int) -> None:
        """Start a program's process, which reads its job from `channel`."""
        socket.send_fds(self.control, [b"s"], [channel, stdin])

    def end(self) -> int:
        """End the process, whatever it does; its exit status."""
        self.control.sendall(b"k")
        status: int = struct.unpack("i", self.control.recv(4, socket.MSG_WAITALL))[0]
        return status


def _run_requested_programs(control: socket.socket, seconds: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # no program can write to the one that asks for verdicts
        os.dup2(nowhere, stream)
    os.close(nowhere)
    while True:
        _, descriptors, _, _ = socket.recv_fds(control, 1, 2)
        if not descriptors:
            return
        child = os.fork()
        if not child:
            try:
                control.close()
                code_program.run_locked_program(descriptors[0], descriptors[1], seconds)
            finally:
                os._exit(1)
        for descriptor in descriptors:
            os.close(descriptor)
        while not select.select([control], [], [], OFTEN)[0]:
            if len([*Path(f"/proc/{child}/task").iterdir()]) > THREADS:
                os.kill(child, signal.SIGKILL)
        request = control.recv(1)  # the examiner says when to stop; where it has ended, the program does too
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not request:
            return
        control.sendall(struct.pack("i", status))


class Examiner:
    """Judges one job after another."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self.runner = ProgramRunner(seconds)

    def passes(self, job: dict[str, Any]) -> bool:
        """Whether the job's program passes all its tests: `pairs` of an input and an output, else `tests`, a list of
        code.
        """
        program = {"setup": job["setup"], "source": job["source"]}
        if "pairs" not in job:
            return self._answers(program, job)
        return all(is_same_output(self._run_program_on_input(program, *pair), pair[1]) for pair in job["pairs"])

    def _run_program_on_input(self, program: dict[str, Any], stdin_text: str, expected: str) -> str | None:
        """What the program prints for an input; None where it fails, or prints far more than it should."""
        ours, theirs = socket.socketpair()
        stdin = os.memfd_create("input")
        os.write(stdin, stdin_text.encode(errors="replace"))
        os.lseek(stdin, 0, os.SEEK_SET)
        most = 2 * len(expected.encode(errors="replace")) + 65536
        output = bytearray()
        with ours:
            self.runner.start(theirs.fileno(), stdin)
            theirs.close()
            os.close(stdin)
            with suppress(OSError):
                Channel(ours.fileno()).send(program)
            deadline = self._compute_deadline()
            while len(output) <= most and _wait_until_readable(ours.fileno(), deadline):
                try:
                    part = ours.recv(65536)
                except ConnectionError:
                    part = b""
                if not part:
                    break
                output += part
        whole = self.runner.end() == 0 and len(output) <= most
        return output.decode(errors="replace") if whole else None

    def _answers(self, program: dict[str, Any], job: dict[str, Any]) -> bool:
        """Whether the tests, which call the program, say that it is right."""
        ours, theirs = socket.socketpair()
        verdict, to_verdict = os.pipe()
        nowhere = os.open(os.devnull, os.O_RDWR)
        self.runner.start(theirs.fileno(), nowhere)
        theirs.close()
        tests = os.fork()
        if not tests:
            try:
                for descriptor in (self.runner.control.fileno(), verdict):
                    os.close(descriptor)
                for stream in (0, 1, 2):
                    os.dup2(nowhere, stream)
                code_program.run_locked_tests(ours.fileno(), to_verdict, program, job, self.seconds)
            finally:
                os._exit(1)
        for descriptor in (to_verdict, nowhere):
            os.close(descriptor)
        ours.close()
        right = _wait_until_readable(verdict, self._compute_deadline()) and os.read(verdict, 2) == code_program.PASSED
        os.kill(tests, signal.SIGKILL)
        os.waitpid(tests, 0)
        os.close(verdict)
        self.runner.end()
        return right

    def _compute_deadline(self) -> float:
        return time.monotonic() + WALL * self.seconds + 10


def _wait_until_readable(descriptor: int, deadline: float) -> bool:
    """Wait until there is something to read, the end included; False at the deadline, or where the one who asks has
    ended.
    """
    left = max(0.0, deadline - time.monotonic())
    ready, _, _ = select.select([descriptor, 0], [], [], left)
    return descriptor in ready


def is_same_output(printed: str | None, expected: str) -> bool:
    """Line by line the same words; spaces between them and empty lines at the end aside.

    A word that is written with a decimal point may differ by 1e-6 of its size, or by 1e-6.
    """
    if printed is None:
        return False
    ours, theirs = ([line.split() for line in text.rstrip().split("\n")] for text in (printed, expected))
    return len(ours) == len(theirs) and all(map(_has_same_words, ours, theirs))


def _has_same_words(printed: Sequence[str], expected: Sequence[str]) -> bool:
    return len(printed) == len(expected) and all(
        word == expected_word
        or (
            "." in expected_word
            and all(map(NUMBER.fullmatch, (word, expected_word)))
            and _is_close(float(word), float(expected_word))
        )
        for word, expected_word in zip(printed, expected, strict=True)
    )


def _is_close(printed: float, expected: float) -> bool:
    return abs(printed - expected) <= 1e-6 * max(1.0, abs(expected))


def main(seconds: int) -> None:
    """Answer each line of standard input, a job, by `right` or `wrong`; before the first say `ready`, or why there is
    no lock.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which closes standard input
    code_program.import_allowed_modules()
    examiner = Examiner(seconds)
    canary = {"setup": "", "source": CANARY, "tests": ["assert locked() is True"], "entry": None}
    print(
        READY if examiner.passes(canary) else "its kernel refuses the lock that they would run in (seccomp)", flush=True
    )
    for line in sys.stdin:
        print(RIGHT if examiner.passes(json.loads(line)) else WRONG, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
