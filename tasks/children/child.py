"""A child process that answers questions, as its parent sees it: each reply is matched to its question, and has limits
of time and size.

Messages are lines of JSON over one socket, which the child finds as its standard input and output. A question has a
number, `call`, which its reply repeats. What else arrives (a reply given twice, another number, no JSON) is no reply:
the child ends, since whatever it says next could be the answer to another question. The first number is drawn, so that
no code in the child knows the next one by counting.
"""

import json
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

READY = 0  # the number of what a child says of itself before it is asked anything
LARGEST = 2**24  # bytes of a reply
GRACE_SECONDS = 1.0  # for a process that has closed its connection to end by itself
SHOWN = 60  # characters of a wrong reply in a message


class ChildEnded(Exception):
    """The child took too long over a reply, or is no more; the text says which, as in `ended (signal 9)`."""


class WrongReply(Exception):
    """The child said what is no reply to any question; the text says what, as in `said '[]', which ..`."""


def draw_first_call_number() -> int:
    """The number of the first question; none that code in a child would come upon."""
    return READY + 1 + secrets.randbits(48)


class Child:
    """A process that answers; it leads a session of its own and ends, with all that it started, by `close`."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self.connection, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                env=dict(environ),
                start_new_session=True,  # a Ctrl-C is for the parent, which ends the process and all that it started
            )
        self._numbers = count(draw_first_call_number())
        self._awaited = {READY}
        self._replies: dict[int, dict[str, Any]] = {}
        self._unread = bytearray()

    def ask(self, question: Mapping[str, object], seconds: float | None = None) -> int:
        """Ask a question, which has to be read within the seconds; its number for `reply`, which finds out where nobody
        listens.
        """
        number = next(self._numbers)
        self._awaited.add(number)
        self.send({**question, "call": number}, seconds)
        return number

    def send(self, message: Mapping[str, object], seconds: float | None = None) -> None:
        """Send a message, to which there is no reply unless it has a number."""
        with suppress(OSError):
            self.connection.settimeout(seconds)
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def reply(self, number: int, seconds: float | None = None) -> dict[str, Any]:
        """The reply to the question of this number, which has `seconds` to arrive whole.

        ChildEnded or WrongReply where it does not come, and the child is closed.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            while number not in self._replies:
                left = None if deadline is None else max(1e-3, deadline - time.monotonic())
                self._receive_replies(left)
        except TimeoutError:
            self.close()
            raise ChildEnded(f"took longer than {seconds:g} s") from None
        except BaseException:  # Ctrl-C too
            self.close()
            raise
        return self._replies.pop(number)

    def alive(self) -> bool:
        """Whether it can be asked something."""
        return self.process.poll() is None

    def close(self) -> None:
        """End it and all that it started, whatever they do."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.connection.close()

    def _receive_replies(self, seconds: float | None) -> None:
        try:
            self.connection.settimeout(seconds)
            part = self.connection.recv(2**16)
        except TimeoutError:
            raise
        except OSError:
            part = b""
        if not part:
            raise ChildEnded(self._describe_end())
        self._unread += part
        if b"\n" in part:
            *lines, self._unread = self._unread.split(b"\n")
            for line in lines:
                self._record_reply(bytes(line))
        if len(self._unread) > LARGEST:
            raise WrongReply(f"said more than {LARGEST >> 20} MiB at once")

    def _record_reply(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        number = message.get("call") if isinstance(message, dict) else None
        if not isinstance(number, int) or isinstance(number, bool) or number not in self._awaited:
            text = line.decode(errors="replace")
            shown = repr(text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}...")
            raise WrongReply(f"said {shown}, which is no reply to what it was asked")
        self._awaited.remove(number)
        self._replies[number] = message

    def _describe_end(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE_SECONDS)
        status = self.process.returncode
        if status is None:
            return "closed its connection"
        return f"ended (signal {-status})" if status < 0 else f"ended (exit status {status})"
