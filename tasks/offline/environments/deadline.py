"""A limit of seconds for code of other people's that runs in the main thread of this process: whatever waits there is
interrupted.

A thread looks at the clock, so that setting the limit costs a step of an environment next to nothing. Code in C that
does not come back to Python goes on. In another thread than the main one, and where somebody else handles the signal,
there is no limit.
"""

import signal
import threading
from math import inf
from time import monotonic
from types import FrameType

TICK = 0.2  # seconds between two looks at the clock
SIGNAL = signal.SIGURG  # which does nothing elsewhere; the timer of a process has SIGALRM (tasks/preflight/trials.py)


class Overdue(BaseException):
    """The seconds are over; no Exception, so that nobody on the way takes it for one of theirs."""


class Alarm:
    """Raises Overdue in the main thread where it is at work later than `due`, in seconds of time.monotonic()."""

    def __init__(self) -> None:
        self.due = inf
        self.thread: threading.Thread | None = None

    def set(self, due: float) -> None:
        """Have the code that follows end by then; inf takes the limit away."""
        self.due = due
        if self.thread is None and due < inf and _can_install_signal_handler():
            signal.signal(SIGNAL, self._interrupt)
            self.thread = threading.Thread(target=self._watch_deadline, name="deadline", daemon=True)
            self.thread.start()

    def _watch_deadline(self) -> None:
        never = threading.Event()
        while True:
            never.wait(TICK)  # time.sleep may be another's: tests replace it
            if monotonic() >= self.due and signal.getsignal(SIGNAL) == self._interrupt:
                signal.pthread_kill(threading.main_thread().ident or 0, SIGNAL)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if monotonic() >= self.due:  # the code may have ended since
            raise Overdue


def _can_install_signal_handler() -> bool:
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(SIGNAL) == signal.SIG_DFL
