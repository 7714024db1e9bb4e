"""Prefect's and MLflow's own pages over this repository's records, on loopback, for as long as somebody looks."""

import os
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from flows.console.summary import log_end, relative
from flows.engine import guard, mlflow_store
from flows.engine.dvc_repository import PlanError
from flows.engine.guard import HOST
from flows.engine.supervisor import Command
from tasks.common import mlflow_database

START_SECONDS = 90.0


@dataclass(frozen=True)
class Page:
    """One server: its name, the command and environment that start it, and the path that answers once it is up."""

    name: str
    url: str
    health: str
    command: Sequence[str]
    environ: Mapping[str, str]


def pages(root: Path, port: int | None = None) -> list[Page]:
    """The Prefect and the MLflow server over mlruns/: on `port` and the next, or on their usual ports, or where those are taken on free ones."""
    mlflow_store.open_store(root)  # made, or found to be whole
    (root / mlflow_database.ARTIFACTS).mkdir(parents=True, exist_ok=True)
    prefect, mlflow = (_port(4200), _port(5000)) if port is None else (_wanted(port), _wanted(port + 1))
    quiet = {"DO_NOT_TRACK": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    common = {**quiet, guard.VARIABLE: guard.token(root)}
    prefect_home = {
        "PREFECT_HOME": str(root / "mlruns/prefect"),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{root / 'mlruns/prefect.db'}",
        "PREFECT_API_URL": f"http://{HOST}:{prefect}/api",
    }
    mlflow_stores = {  # what `mlflow server` passes to its workers
        "_MLFLOW_SERVER_FILE_STORE": mlflow_database.address(root),
        "_MLFLOW_SERVER_ARTIFACT_ROOT": str(root / mlflow_database.ARTIFACTS),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    return [
        Page(
            "Prefect",
            f"http://{HOST}:{prefect}",
            "/api/health",
            guard.command("prefect", prefect),
            {**common, **prefect_home},
        ),
        Page(
            "MLflow", f"http://{HOST}:{mlflow}", "/health", guard.command("mlflow", mlflow), {**common, **mlflow_stores}
        ),
    ]


def serve(root: Path, console: Console, port: int | None = None) -> int:
    """Start the pages, print their addresses, and stay until Ctrl-C or until one of them ends (then 1)."""
    with ExitStack() as stack:
        running = []
        for page in pages(root, port):
            log = root / f"mlruns/logs/{page.name.lower()}-pages.log"
            log.unlink(missing_ok=True)
            command = Command([page.command], root, {**os.environ, **page.environ}, log)
            stack.callback(command.stop)
            running.append((page, command, log))
        for page, command, log in running:
            if not _answers(page, command):
                return _ended(console, page, log, root)
            console.print(f"{page.name:<8} {page.url}/?token={guard.token(root)}", markup=False)
        console.print("The addresses have this repository's token: do not pass them on. Ctrl-C stops both.")
        while True:
            for page, command, log in running:
                if command.wait(0.5) is not None:
                    return _ended(console, page, log, root)


def _port(usual: int) -> int:
    """The usual port if it is free, else one that is."""
    for wanted in (usual, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, wanted))
            except OSError:
                continue
            port: int = probe.getsockname()[1]
            return port
    raise RuntimeError("no free port on loopback")


def _wanted(port: int) -> int:
    """The port, if it is free."""
    if _port(port) != port:
        raise PlanError(f"--port {port}: something else listens there")
    return port


def _answers(page: Page, command: Command) -> bool:
    asked = urllib.request.Request(page.url + page.health, headers={guard.HEADER: page.environ[guard.VARIABLE]})
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(asked, timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            if command.wait(0.2) is not None:
                return False
    return False


def _ended(console: Console, page: Page, log: Path, root: Path) -> int:
    for line in log_end(log):
        console.print(f"  {line}", markup=False)
    console.print(f"{page.name}'s server has ended; its log: {relative(log, root)}", markup=False)
    return 1
