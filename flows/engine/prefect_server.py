"""A Prefect API for one run: the configured server, or else a temporary one on loopback that cannot outlive the run.

Prefect's own temporary server survives a `kill -9` of the run and writes to the terminal. The history of this one
stays in mlruns/prefect.db, for `posttrain ui`.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.engine.dvc_repository import PlanError
from flows.engine.guard import GuardedServer, free_port

LOOK_SECONDS = 0.5  # between two checks that the server still runs


def store(root: Path) -> dict[str, str]:
    """The environment variables with which a Prefect server keeps its history in mlruns/."""
    return {
        "PREFECT_HOME": str(root / "mlruns/prefect"),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{root / 'mlruns/prefect.db'}",
    }


def be_quiet() -> None:
    """Silence Prefect's log, and turn off the statistics of Prefect and MLflow; call before either is imported."""
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # MLflow takes no other DO_NOT_TRACK than "true"
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")


class TemporaryServer:
    """A server process. Starting takes some seconds; the caller can do other work before `wait`."""

    def __init__(self, root: Path) -> None:
        environ = {
            **store(root),
            "PREFECT_UI_ENABLED": "0",
            "PREFECT__SERVER_EPHEMERAL": "1",
            "PREFECT__SERVER_FINAL": "1",
        }
        self._server = GuardedServer("prefect", root, free_port(), environ, root / "mlruns/logs/prefect-server.log")
        self.url, self.headers = f"{self._server.url}/api", self._server.headers
        self._stopping = threading.Event()

    def wait(self) -> None:
        """Return once the server answers; PlanError if it ends or does not come up."""
        if not self._server.comes_up():
            raise PlanError(f"Prefect's temporary server did not start; see {self._server.log}")

    def keep_alive(self) -> None:
        """Restart the server at the same address, with the same history, whenever it is ended from outside.

        Without a server a run would wait for minutes at every step.
        """

        def watch() -> None:
            while not self._stopping.wait(LOOK_SECONDS):
                if self._server.ended() and not self._stopping.is_set():
                    self._server.start()

        threading.Thread(target=watch, daemon=True).start()

    def stop(self) -> None:
        """End the server."""
        self._stopping.set()
        self._server.stop()


def temporary_server(root: Path) -> TemporaryServer | None:
    """Start a server, unless Prefect is configured to use one (PREFECT_API_URL, in the environment or a profile).

    The server is started before Prefect is imported and its configuration read, since everything else waits for the server.
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
    """Run flows against the server; before leaving, have Prefect send its buffered logs and events."""
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
    """Mark flow runs that the history has as running as crashed: only one run at a time uses this history."""
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
