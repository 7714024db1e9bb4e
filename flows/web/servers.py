"""Prefect's and MLflow's own pages over this repository's records, on loopback, until Ctrl-C; or where they are, if they are elsewhere."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from flows.console.summary import log_end, relative
from flows.engine import guard, mlflow_runs, mlflow_store, prefect_server
from flows.engine.dvc_repository import PlanError
from flows.engine.guard import GuardedServer, free_port
from flows.workers import prefect_servers
from tasks.common import mlflow_address, mlflow_database

QUIET = {"DO_NOT_TRACK": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
Page = tuple[str, int, Mapping[str, str]]  # of which server, its port, its environment


def serve(root: Path, console: Console, port: int | None = None) -> int:
    """Start the pages, print their addresses, and stay until Ctrl-C or until one of them ends (then 1).

    They listen on `port` and the next one. Without `port` they use 4200 and 5000, and any free port in place of one in use.
    A server that MLFLOW_TRACKING_URI or Prefect's configuration names has pages of its own: only its address is printed.
    """
    pages = [*_pages(root, console, port)]
    if pages:
        names = " and ".join(name for name, _, _ in pages)
        console.print(f"Starting {names}; this takes up to half a minute.", markup=False)
    mlflow_store.open_store(root)  # the database is created if missing, and checked
    (root / mlflow_database.ARTIFACTS).mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        running = {}
        for name, place, environ in pages:
            log = root / f"mlruns/logs/{name.lower()}-pages.log"
            log.unlink(missing_ok=True)
            running[name] = GuardedServer(name.lower(), root, place, {**QUIET, **environ}, log)
            stack.callback(running[name].stop)
        for name, server in running.items():
            if not server.comes_up():
                return _ended(console, name, server, root)
            console.print(f"{name:<8} {server.url}/?token={guard.token(root)}", markup=False)
        if not running:
            return 0
        if "Prefect" in running:  # the note by which workers and runs in this checkout find the server
            note = root / prefect_servers.NOTE
            note.write_text(json.dumps({"url": f"{running['Prefect'].url}/api"}))
            stack.callback(note.unlink, missing_ok=True)
        stops = "both" if len(running) > 1 else "it"
        console.print(f"The addresses have this repository's token: do not pass them on. Ctrl-C stops {stops}.")
        while True:
            for name, server in running.items():
                if server.ended(0.5):
                    return _ended(console, name, server, root)


def _pages(root: Path, console: Console, port: int | None) -> Iterator[Page]:
    """The servers to start; of those that are elsewhere the address is printed."""
    with mlflow_runs.one_line():
        elsewhere = mlflow_address.shared(root)
    configured = prefect_server.configured()
    if configured is not None:
        console.print(f"Prefect  {configured.removesuffix('/api')} (PREFECT_API_URL)", markup=False)
    else:
        prefect = free_port(4200) if port is None else _wanted(port)
        api = {"PREFECT_API_URL": f"http://{guard.HOST}:{prefect}/api"}
        yield "Prefect", prefect, {**prefect_server.store(root), **api}
    if elsewhere is not None:
        console.print(f"MLflow   {mlflow_address.public(elsewhere)} ({mlflow_address.VARIABLE})", markup=False)
    if elsewhere is None or not mlflow_address.is_server(elsewhere):
        mlflow = free_port(5000) if port is None else _wanted(port + 1)
        yield "MLflow", mlflow, mlflow_store.server_store(root)


def _wanted(port: int) -> int:
    """The port; PlanError if it is not free."""
    if free_port(port) != port:
        raise PlanError(f"--port {port}: something else listens there")
    return port


def _ended(console: Console, name: str, server: GuardedServer, root: Path) -> int:
    for line in log_end(server.log):
        console.print(f"  {mlflow_address.clean(line)}", markup=False)
    console.print(f"{name}'s server has ended; its log: {relative(server.log, root)}", markup=False)
    return 1
