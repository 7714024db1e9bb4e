"""Prefect's and MLflow's own pages over this repository's records, on loopback, until Ctrl-C."""

from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from flows.console.summary import log_end, relative
from flows.engine import guard, mlflow_store, prefect_server
from flows.engine.dvc_repository import PlanError
from flows.engine.guard import GuardedServer, free_port
from tasks.common import mlflow_database

QUIET = {"DO_NOT_TRACK": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}


def serve(root: Path, console: Console, port: int | None = None) -> int:
    """Start the pages, print their addresses, and stay until Ctrl-C or until one of them ends (then 1).

    They listen on `port` and the next one. Without `port` they use 4200 and 5000, and any free port in place of one in use.
    """
    mlflow_store.open_store(root)  # the database is created if missing, and checked
    (root / mlflow_database.ARTIFACTS).mkdir(parents=True, exist_ok=True)
    prefect, mlflow = (free_port(4200), free_port(5000)) if port is None else (_wanted(port), _wanted(port + 1))
    api = {"PREFECT_API_URL": f"http://{guard.HOST}:{prefect}/api"}
    pages = [
        ("Prefect", prefect, {**prefect_server.store(root), **api}),
        ("MLflow", mlflow, mlflow_store.server_store(root)),
    ]
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
        console.print("The addresses have this repository's token: do not pass them on. Ctrl-C stops both.")
        while True:
            for name, server in running.items():
                if server.ended(0.5):
                    return _ended(console, name, server, root)


def _wanted(port: int) -> int:
    """The port; PlanError if it is not free."""
    if free_port(port) != port:
        raise PlanError(f"--port {port}: something else listens there")
    return port


def _ended(console: Console, name: str, server: GuardedServer, root: Path) -> int:
    for line in log_end(server.log):
        console.print(f"  {line}", markup=False)
    console.print(f"{name}'s server has ended; its log: {relative(server.log, root)}", markup=False)
    return 1
