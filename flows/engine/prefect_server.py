"""A Prefect API for one run: the configured server, or else a temporary one on loopback that cannot outlive the run.

A configured server may be shared by many clones; the flow runs of this one have a tag by which it knows them. Prefect's own temporary server survives a `kill -9` of the run and writes to the terminal. The history of this one
stays in mlruns/prefect.db, for `posttrain ui`.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.engine.dvc_repository import PlanError
from flows.engine.guard import GuardedServer, free_port
from tasks.common import mlflow_address

FOR_PEOPLE = "Waiting for people"  # the name of a state in Prefect
LOOK_SECONDS = 0.5  # between two checks that the server still runs
ASK_SECONDS = 15  # for a configured server's first answer
REFUSED = {
    401: "it asks who this is: set PREFECT_API_AUTH_STRING (USER:PASSWORD) or PREFECT_API_KEY",
    403: "it refuses this user",
    404: "expected the address of Prefect's API, which ends with /api",
}


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
    PlanError where a configured server does not answer.
    """
    server = None if os.environ.get("PREFECT_API_URL") else TemporaryServer(root)
    if configured() is None:
        return server or TemporaryServer(root)
    if server is not None:
        server.stop()
    _ask()
    return None


def may_be_configured(root: Path) -> bool:
    """Whether Prefect may be configured to use a server; if False it is not. Prefect, which alone knows, is not imported."""
    if os.environ.get("PREFECT_API_URL"):
        return True
    home = Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser()
    profiles = Path(os.environ.get("PREFECT_PROFILES_PATH", home / "profiles.toml")).expanduser()
    own, shared = [profiles, root / ".env", root / "prefect.toml"], root / "pyproject.toml"
    if any("url" in file.read_text(errors="replace").lower() for file in own if file.is_file()):
        return True
    return shared.is_file() and "[tool.prefect" in shared.read_text(errors="replace")


def configured() -> str | None:
    """The API's address that Prefect is configured to use, as it may be shown; None if there is none."""
    from prefect.settings import PREFECT_API_URL

    found = PREFECT_API_URL.value()
    return mlflow_address.public(str(found)) if found else None


def _ask() -> None:
    """One question to the configured server, without Prefect's minutes of trying again."""
    from httpx import HTTPStatusError, TransportError
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_REQUEST_TIMEOUT, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    briefly = temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0, PREFECT_API_REQUEST_TIMEOUT: ASK_SECONDS})
    try:
        with briefly, get_client(sync_client=True) as client:
            client.read_flow_runs(limit=1)
    except (HTTPStatusError, TransportError, RuntimeError, ValueError) as error:
        cause = error if isinstance(error, HTTPStatusError) else error.__cause__
        status = cause.response.status_code if isinstance(cause, HTTPStatusError) else None
        why = REFUSED.get(status or 0, mlflow_address.clean(" ".join(str(error).split()))[:200])
        raise PlanError(f"PREFECT_API_URL: {configured()}: {why}") from None


@contextmanager
def using(server: TemporaryServer | None, root: Path) -> Iterator[None]:
    """Run flows against the server; before leaving, have Prefect send its buffered logs and events."""
    from prefect import tags
    from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_CUSTOM_HEADERS, temporary_settings

    if server is None:
        ours = f"posttrain-clone-{mlflow_address.clone(root)}"
        _end_stale_runs(ours)
        with tags(ours):
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


def _end_stale_runs(tag: str | None = None) -> None:
    """Mark flow runs, those with this tag, that the history has as running as crashed: a clone has only one run at a time."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterState,
        FlowRunFilterStateType,
        FlowRunFilterTags,
    )
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    running = FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING])
    left = FlowRunFilter(
        state=FlowRunFilterState(type=running), tags=FlowRunFilterTags(all_=[tag]) if tag is not None else None
    )
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=left):
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
