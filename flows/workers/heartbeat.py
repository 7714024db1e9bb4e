"""The thread by which an attempt tells the coordinator that it lives, how far it is, and what it writes; and learns
that it is not wanted.

A server that is away for a while changes nothing: the reports go on when it is back.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from flows.engine.dvc_repository import PlanError
from flows.workers.job import BEAT_SECONDS, Status
from flows.workers.prefect_api import ENDED, Api, Away

NOT_WANTED = "the coordinator does not wait for it any more"
CHUNK = 200_000  # bytes of the log in one report


class Reporter:
    """Reports one attempt's status and log. `unwanted` is called once, with the reason, when the attempt must stop.

    `parent` is the process of the worker; once it is not this process's parent any more, the worker has ended.
    """

    def __init__(
        self, api: Api, run: str, status: Status, unwanted: Callable[[str, bool], None], parent: int | None = None
    ) -> None:
        self.api = api
        self.run = run
        self.status = status
        self._unwanted = unwanted
        self.log: Path | None = None
        self.still: Callable[[], bool] = lambda: True  # whether the coordinator's own note names this attempt
        self._position = 0
        self._artifact = ""
        self._parent = os.getppid() if parent is None else parent
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run_report_loop, daemon=True)

    def start(self) -> None:
        """Begin to report."""
        self._thread.start()

    def stop(self) -> None:
        """Report no more; the status is the caller's alone after this. Harmless the second time."""
        self._ended.set()
        self._thread.join()

    def beat(self) -> None:
        """Send one report; Away if the server cannot be reached."""
        self.status.beat += 1
        if self._artifact:
            self.api.update_status(self._artifact, self.status.json())
        else:
            self._artifact = self.api.post_status(self.run, self.status.json())
        self._send_new_log_lines()

    def wanted(self) -> bool:
        """Whether the coordinator still waits for this attempt; Away if the server cannot be asked."""
        if not self.still():
            return False
        run = self.api.flow_run(self.run)
        return run is not None and run.state not in (*ENDED, "CANCELLING")

    def _run_report_loop(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            if os.getppid() != self._parent:
                return self._unwanted("its worker ended", True)
            with suppress(Away, PlanError, OSError):  # OSError: the log's folder is deleted at this moment
                if not self.wanted():
                    return self._unwanted(NOT_WANTED, False)
                self.beat()

    def _send_new_log_lines(self) -> None:
        """Send the whole lines that are new in the log."""
        if self.log is None or not self.log.exists():
            return
        with self.log.open("rb") as file:
            file.seek(self._position)
            read = file.read(CHUNK)
        whole = read if len(read) == CHUNK and b"\n" not in read else read[: read.rfind(b"\n") + 1]
        if whole:
            self.api.write_log(self.run, whole.decode(errors="replace").splitlines())
            self._position += len(whole)
