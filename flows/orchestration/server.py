"""The Prefect server of a run: the one that the user has configured, or else the repository's own on loopback.

The repository's own is started when a run first needs it, and stays for POSTTRAIN_SERVER_MINUTES (15) after the last
one, so that the next run does not wait for it. Its history is mlruns/prefect.db. Nothing here imports Prefect before it
has to.
"""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from flows.engine import server_guard
from flows.engine.dvc_repository import PlanError
from flows.machine import files
from flows.orchestration import server_keeper
from tasks.common import mlflow_address

START_SECONDS = 180.0  # a loaded machine takes 45 s
SAY_SECONDS = 3.0  # of waiting until a line says so
MOST_STARTS = 2
LOOK_SECONDS = 0.1
WATCH_SECONDS = 1.0
ENDS_SECONDS = 15.0
ASK_SECONDS = 15  # for a configured server's first answer
REFUSED = {
    401: "it asks who this is: set PREFECT_API_AUTH_STRING (USER:PASSWORD) or PREFECT_API_KEY",
    403: "it refuses this user",
    404: "expected the address of Prefect's API, which ends with /api",
}


def set_prefect_mlflow_env_defaults(root: Path | None = None) -> None:
    """Silence Prefect's log, and turn off the statistics of Prefect and MLflow; call before either is imported.

    With the repository's root Prefect keeps its own files in there, unless the user has a place for them.
    """
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # MLflow takes no other DO_NOT_TRACK than "true"
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    if root is not None and not can_have_configured_server(root):
        os.environ.setdefault("PREFECT_HOME", str(root / server_keeper.HOME))


class Server:
    """The repository's own server while this process uses it.

    Starting takes some seconds, in which the caller can do other work.
    """

    def __init__(self, root: Path, minutes: str = "") -> None:
        """Start the server unless it runs; `minutes` replaces POSTTRAIN_SERVER_MINUTES for a server that is started
        now.
        """
        self.root = root
        self._environ = {
            **os.environ,
            server_keeper.TOKEN: server_guard.load_or_create_token(root),
            **({server_keeper.MINUTES: minutes} if minutes else {}),
        }
        try:
            server_keeper.parse_idle_minutes(self._environ)
        except ValueError as error:
            raise PlanError(str(error)) from None
        files.make_folder(root, server_keeper.HOME)
        files.make_folder(root, server_keeper.LOG.parent)
        self._users = (root / server_keeper.USERS).open("a")
        fcntl.flock(self._users, fcntl.LOCK_SH)
        self._keeper = None if is_keeper_running(root) else self._start()
        self._closed = threading.Event()
        self._watch = threading.Thread(target=self._watch_and_restart_once, name="server", daemon=True)

    def _start(self) -> "subprocess.Popen[bytes]":
        (self.root / server_keeper.STOPPED).unlink(missing_ok=True)
        with (self.root / server_keeper.LOG.with_suffix(".keeper.log")).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "flows.orchestration.server_keeper", str(self.root)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.root,
                env=self._environ,
                start_new_session=True,  # neither Ctrl-C nor the end of this process reaches it
            )
        threading.Thread(target=process.wait, name="keeper", daemon=True).start()  # so that it leaves no zombie
        return process

    def wait(self, say: Callable[[str], object] = lambda line: None) -> None:
        """Return once the server answers. After a while a line says for what this waits.

        A server that ends before it answers is started again once. PlanError if that one ends too, or none comes up.
        """
        began = time.monotonic()
        announced = False
        starts = int(self._keeper is not None)
        while not is_server_answering(self.root):
            waited = time.monotonic() - began
            has_ended = (self._keeper is None or self._keeper.poll() is not None) and not is_keeper_running(self.root)
            if (has_ended and starts == MOST_STARTS) or waited > START_SECONDS:
                raise PlanError(f"Prefect's server did not start; see {server_keeper.LOG}")
            if has_ended:
                self._keeper = self._start()
                starts = starts + 1
            if waited > SAY_SECONDS and not announced:
                announced = True
                say("waits until Prefect's server has started")
            time.sleep(LOOK_SECONDS)
        if self._watch.ident is None:  # each flow of a run waits here
            self._watch.start()

    def _watch_and_restart_once(self) -> None:
        """While the server is in use, start it again once if the process that keeps it was killed, at the same
        address.
        """
        while not self._closed.wait(WATCH_SECONDS):
            if not is_keeper_running(self.root):
                deadline = time.monotonic() + ENDS_SECONDS
                while (
                    _is_server_listening(self.root) and time.monotonic() < deadline
                ):  # the server itself ends after its keeper
                    time.sleep(LOOK_SECONDS)
                if not (self._closed.is_set() or (self.root / server_keeper.STOPPED).exists()):
                    self._keeper = self._start()
                return

    @property
    def url(self) -> str:
        """The address of its API, once it has started."""
        return build_client_environment(self.root)["PREFECT_API_URL"]

    def close(self) -> None:
        """Use it no more."""
        self._closed.set()
        self._users.close()


def build_client_environment(root: Path) -> dict[str, str]:
    """The variables with which Prefect's clients speak to the repository's own server; PlanError where it has ended."""
    note = server_keeper.read_server_note(root)
    if note is None:
        raise PlanError(f"Prefect's server has ended; see {server_keeper.LOG}")
    return {
        "PREFECT_API_URL": note.url,
        "PREFECT_API_AUTH_STRING": f"posttrain:{server_guard.load_or_create_token(root)}",
    }


def is_keeper_running(root: Path) -> bool:
    """Whether a process keeps the repository's own server."""
    with suppress(FileNotFoundError), (root / server_keeper.LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def is_server_answering(root: Path) -> bool:
    """Whether the repository's own server answers."""
    note = server_keeper.read_server_note(root)
    if note is None or not is_keeper_running(root):
        return False
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback never goes through a proxy
    try:
        with direct.open(f"{note.url}/health", timeout=5):
            return True
    except (OSError, ValueError):
        return False


def _is_server_listening(root: Path) -> bool:
    """Whether anything accepts connections where the note says that the server is."""
    note = server_keeper.read_server_note(root)
    with socket.socket() as probe:
        return note is not None and probe.connect_ex((server_guard.HOST, note.port)) == 0


def stop_server(root: Path) -> bool:
    """End the repository's own server; whether there was one."""
    note = server_keeper.read_server_note(root)
    if note is None or not is_keeper_running(root):
        return False
    (root / server_keeper.STOPPED).touch()  # so that who uses it does not start it again
    with suppress(ProcessLookupError):
        os.kill(note.process, signal.SIGTERM)
    while is_keeper_running(root):
        time.sleep(LOOK_SECONDS)
    return True


def build_no_proxy_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables by which no request to loopback goes through a proxy."""
    before = variables.get("NO_PROXY") or variables.get("no_proxy") or ""
    hosts = ",".join(dict.fromkeys([*filter(None, before.split(",")), server_guard.HOST, "localhost"]))
    return {"NO_PROXY": hosts, "no_proxy": hosts}


def can_have_configured_server(root: Path) -> bool:
    """Whether Prefect may be configured to use a server; if False it is not.

    Prefect, which alone knows, is not imported.
    """
    if os.environ.get("PREFECT_API_URL"):
        return True
    home = Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser()
    profiles = Path(os.environ.get("PREFECT_PROFILES_PATH", home / "profiles.toml")).expanduser()
    config_files = [profiles, root / ".env", root / "prefect.toml"]
    shared = root / "pyproject.toml"
    if any("url" in file.read_text(errors="replace").lower() for file in config_files if file.is_file()):
        return True
    return shared.is_file() and "[tool.prefect" in shared.read_text(errors="replace")


def is_within_flow_run() -> bool:
    """Whether this is called by a flow that runs, which has its server."""
    if "prefect" not in sys.modules:
        return False
    from prefect import runtime

    return runtime.flow_run.id is not None


def find_redacted_configured_api_url() -> str | None:
    """The API's address that Prefect is configured to use, as it may be shown; None if there is none."""
    from prefect.settings import PREFECT_API_URL

    address = PREFECT_API_URL.value()
    return mlflow_address.redact_address(str(address)) if address else None


def start_own_server_unless_configured(root: Path, say: Callable[[str], object] = lambda line: None) -> Server | None:
    """The repository's own server, which may still be starting; None where the user has configured another, which has
    answered.

    `say` gets the line that names a configured server, before anything is sent there. PlanError where that one does not
    answer.
    """
    if not can_have_configured_server(root) or find_redacted_configured_api_url() is None:
        return Server(root)
    say(f"Prefect's server: {find_redacted_configured_api_url()}")
    _check_configured_server()
    return None


def _check_configured_server() -> None:
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
        why = REFUSED.get(status or 0, mlflow_address.redact_secrets(" ".join(str(error).split()))[:200])
        raise PlanError(f"PREFECT_API_URL: {find_redacted_configured_api_url()}: {why}") from None


@contextmanager
def connect_flow_runs_to_server(
    server: Server | None, root: Path, say: Callable[[str], object] = lambda line: None
) -> Iterator[None]:
    """Run flows against the server, with a tag by which it knows this clone's; before leaving, send the buffered logs
    and events.
    """
    from prefect import tags

    with connect_prefect_clients(server, root, say), tags(build_clone_tag(root)):
        mark_stale_runs_crashed(root)
        try:
            yield
        finally:
            _flush_prefect_buffers()


@contextmanager
def connect_prefect_clients(
    server: Server | None, root: Path, say: Callable[[str], object] = lambda line: None
) -> Iterator[None]:
    """Have Prefect's clients in this context speak to the server once it answers; None stands for the configured
    one.
    """
    from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

    with ExitStack() as stack:
        if server is not None:
            server.wait(say)
            os.environ.update(build_no_proxy_variables(os.environ))
            variables = build_client_environment(root)
            url = variables["PREFECT_API_URL"]
            secret = variables["PREFECT_API_AUTH_STRING"]
            stack.enter_context(temporary_settings({PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: secret}))
        yield


def build_clone_tag(root: Path) -> str:
    """The tag of this clone's flow runs."""
    return f"posttrain-clone-{mlflow_address.load_or_create_clone_id(root)}"


def mark_stale_runs_crashed(root: Path, current: str = "") -> None:
    """Mark this clone's flow runs that the history has as running as crashed, apart from the `current` one: a clone has
    only one run at a time.
    """
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterState,
        FlowRunFilterStateType,
        FlowRunFilterTags,
    )
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    running = FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.PAUSED])
    left = FlowRunFilter(state=FlowRunFilterState(type=running), tags=FlowRunFilterTags(all_=[build_clone_tag(root)]))
    with get_client(sync_client=True) as client:
        for run in client.read_flow_runs(flow_run_filter=left):
            if str(run.id) != current:
                client.set_flow_run_state(run.id, Crashed(message="its process was killed"), force=True)


def _flush_prefect_buffers() -> None:
    """Have Prefect send what it has buffered."""
    import inspect

    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker
    from prefect.utilities.asyncutils import run_coro_as_sync

    async def drain() -> None:
        for pending in (APILogWorker.instance().drain(), EventsWorker.drain_all()):
            if inspect.isawaitable(pending):
                await pending

    with suppress(Exception):  # the server may be gone: what had finished is kept all the same
        run_coro_as_sync(drain())
