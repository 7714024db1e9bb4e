"""Prefect's and MLflow's own pages over this repository's records, on loopback, for as long as somebody looks."""

import os
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from flows.engine import store
from flows.engine.supervisor import Command
from flows.summary import log_end, relative

HOST = "127.0.0.1"
START_SECONDS = 90.0


@dataclass(frozen=True)
class Page:
    """One server: its name, the command and environment that start it, and the path that answers once it is up."""

    name: str
    url: str
    health: str
    command: Sequence[str]
    environ: Mapping[str, str]


def pages(root: Path) -> list[Page]:
    """The Prefect and the MLflow server over mlruns/, on their usual ports or, where those are taken, on free ones."""
    (root / "mlruns/artifacts").mkdir(parents=True, exist_ok=True)
    prefect, mlflow = _port(4200), _port(5000)
    quiet = {"DO_NOT_TRACK": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    prefect_home = {
        "PREFECT_HOME": str(root / "mlruns/prefect"),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{root / 'mlruns/prefect.db'}",
        "PREFECT_API_URL": f"http://{HOST}:{prefect}/api",
    }
    prefect_command = ["-m", "prefect", "server", "start", "--host", HOST, "--port", str(prefect)]
    mlflow_command = ["-m", "mlflow", "server", "--host", HOST, "--port", str(mlflow), "--workers", "1"]
    mlflow_stores = ["--backend-store-uri", store.uri(root), "--default-artifact-root", str(root / "mlruns/artifacts")]
    return [
        Page("Prefect", f"http://{HOST}:{prefect}", "/api/health", prefect_command, {**quiet, **prefect_home}),
        Page("MLflow", f"http://{HOST}:{mlflow}", "/health", [*mlflow_command, *mlflow_stores], quiet),
    ]


def serve(root: Path, console: Console) -> int:
    """Start the pages, print their addresses, and stay until Ctrl-C or until one of them ends (then 1)."""
    with ExitStack() as stack:
        running = []
        for page in pages(root):
            log = root / f"mlruns/logs/{page.name.lower()}-pages.log"
            log.unlink(missing_ok=True)
            command = Command([[sys.executable, *page.command]], root, {**os.environ, **page.environ}, log)
            stack.callback(command.stop)
            running.append((page, command, log))
        for page, command, log in running:
            if not _answers(page, command):
                return _ended(console, page, log, root)
            console.print(f"{page.name:<8} {page.url}", markup=False)
        console.print("Ctrl-C stops both.")
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
            return probe.getsockname()[1]
    raise RuntimeError("no free port on loopback")


def _answers(page: Page, command: Command) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(page.url + page.health, timeout=5):
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
