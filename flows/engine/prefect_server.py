"""A Prefect API for one run: the configured server, or else a temporary one on loopback that cannot outlive the run.

Prefect would start its own; that one survives a `kill -9` of the run and writes on the user's screen. This one's
history stays in mlruns/prefect.db, for `posttrain ui`.
"""

import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.engine import guard
from flows.engine.dvc_repository import PlanError
from flows.engine.supervisor import Command

START_SECONDS = 90.0
LOOK_SECONDS = 0.5  # between two looks at whether it still runs


def be_quiet() -> None:
    """Keep Prefect's remarks off the screen, and its and MLflow's statistics at home; call before either is imported."""
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it takes only "true" for a DO_NOT_TRACK
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")


class TemporaryServer:
    """A server process; starting takes some seconds, in which the caller can do other things before `wait`."""

    def __init__(self, root: Path) -> None:
        with socket.socket() as probe:
            probe.bind((guard.HOST, 0))
            port = probe.getsockname()[1]
        self.url, self.log = f"http://{guard.HOST}:{port}/api", root / "mlruns/logs/prefect-server.log"
        self.headers = {guard.HEADER: guard.token(root)}
        environ = {
            **os.environ,
            guard.VARIABLE: self.headers[guard.HEADER],
            "PREFECT_HOME": str(root / "mlruns/prefect"),
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{root / 'mlruns/prefect.db'}",
            "PREFECT_UI_ENABLED": "0",
            "PREFECT__SERVER_EPHEMERAL": "1",
            "PREFECT__SERVER_FINAL": "1",
        }
        self._start: Callable[[], Command] = lambda: Command([guard.command("prefect", port)], root, environ, self.log)
        self._command, self._stopping = self._start(), threading.Event()

    def wait(self) -> None:
        """Return once the server answers; PlanError if it ends or does not come up."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            try:
                asked = urllib.request.Request(f"{self.url}/health", headers=self.headers)
                with urllib.request.urlopen(asked, timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                if self._command.wait(0.1) is not None:
                    break
        raise PlanError(f"Prefect's temporary server did not start; see {self.log}")

    def keep_alive(self) -> None:
        """Start it again, at the same place and with the same history, whenever it is ended by somebody else: without it a run
        would wait for minutes at every step."""

        def watch() -> None:
            while not self._stopping.wait(LOOK_SECONDS):
                if self._command.wait(0) is not None and not self._stopping.is_set():
                    self._command = self._start()

        threading.Thread(target=watch, daemon=True).start()

    def stop(self) -> None:
        """End the server."""
        self._stopping.set()
        self._command.stop()


def temporary_server(root: Path) -> TemporaryServer | None:
    """Start a server, unless Prefect is configured to use one (PREFECT_API_URL, in the environment or a profile).

    It is started before Prefect is imported here to be asked, since everything else waits for it.
    """
    if os.environ.get("PREFECT_API_URL"):
        return None
    server = TemporaryServer(root)
    from prefect.settings import PREFECT_API_URL

    if PREFECT_API_URL.value():
        server.stop()
        return None
    return server


@contextmanager
def using(server: TemporaryServer | None) -> Iterator[None]:
    """Run flows against the server, and have Prefect send all that it still holds back before leaving."""
    from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_CUSTOM_HEADERS, temporary_settings

    if server is None:
        yield
        return
    server.wait()
    server.keep_alive()
    with temporary_settings({PREFECT_API_URL: server.url, PREFECT_CLIENT_CUSTOM_HEADERS: server.headers}):
        _end_stale_runs()
        try:
            yield
        finally:
            _drain()


def _end_stale_runs() -> None:
    """Flow runs that the history has as running were killed: one run at a time is at work on this history."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    running = FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING])
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=running))):
            client.set_flow_run_state(run.id, Crashed(message="its process was killed"), force=True)


def _drain() -> None:
    import inspect

    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker
    from prefect.utilities.asyncutils import run_coro_as_sync

    async def drain() -> None:
        for pending in (APILogWorker.instance().drain(), EventsWorker.drain_all()):
            if inspect.isawaitable(pending):
                await pending

    run_coro_as_sync(drain())
