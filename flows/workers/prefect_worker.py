"""`posttrain worker`: Prefect's process worker, asked often and quick to be missed, in this checkout or clone."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from flows.engine.dvc_repository import PlanError
from flows.machine.resources import list_gpus
from flows.orchestration.server import set_prefect_mlflow_env_defaults
from flows.workers import in_copy, prefect_servers
from flows.workers.attempt import NAME, ROOT, WORKER
from flows.workers.pool import raise_away_as_plan_error
from flows.workers.prefect_api import ENDED, Api, Away, PoolWorker
from tasks.common import mlflow_address

# Prefect's own: it asks for work every 10 s and says every 30 s that it lives.
OFTEN = {
    "PREFECT_WORKER_QUERY_SECONDS": "0.5",
    "PREFECT_WORKER_HEARTBEAT_SECONDS": "5",
    "PREFECT_WORKER_PREFETCH_SECONDS": "1",
}
VARIABLE = "posttrain_worker_"
LEAVING, LEAVING_SECONDS = (
    4,
    1.0,
)  # how often a worker that stops tells a server that does not answer, and the pause between
OLD_SECONDS = 86_400.0  # after which a worker that does not live will not come back


def run_worker(root: Path, console: Console, pool: str, name: str | None, limit: int | None) -> int:
    """Take stages from the pool until Ctrl-C; the pool is made if there is none of this name."""
    set_prefect_mlflow_env_defaults()
    api = prefect_servers.connect_to_prefect(root)
    in_copy.delete_abandoned_folders(root / in_copy.HOME)
    devices = list_gpus(os.environ)
    name = name or f"{socket.gethostname()}-{os.getpid()}"
    limit = limit or max(len(devices), 1)
    os.environ.update(OFTEN)
    os.environ.update({ROOT: str(root), NAME: name, WORKER: str(os.getpid())})
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    from prefect.workers.process import ProcessWorker

    variable = VARIABLE + "".join(letter if letter.isalnum() else "_" for letter in name.lower())
    facts = {
        "name": name,
        "pool": pool,
        "host": socket.gethostname(),
        "devices": devices,
        "limit": limit,
        "checkout": mlflow_address.load_or_create_clone_id(root),
        "since": time.time(),
    }
    with raise_away_as_plan_error():
        api.create_pool_if_missing(pool, ProcessWorker.get_default_base_job_template())
        if any(worker.name == name and worker.online for worker in api.workers(pool) or ()):
            raise PlanError(f"--name {name}: a worker of this name is at work in pool {pool}")
        _withdraw_dead_workers(api)
        api.announce_worker(variable, facts)
    have = f"GPU {', '.join(devices)}" if devices else "no GPU"
    console.print(f"worker {name} of pool {pool} ({have}) takes stages from {api.url}; Ctrl-C stops it", markup=False)
    attempts: list[str] = []
    try:
        _run_until_signal(ProcessWorker, pool, name, limit, attempts, lambda line: console.print(line, markup=False))
    finally:
        _deregister_worker(api, pool, name, variable, attempts)
        console.print("stopped")
    return 0


def _withdraw_dead_workers(api: Api) -> None:
    """Withdraw what workers have announced that were killed: for long neither they nor the server's list have said that
    one lives.
    """
    long_ago = time.time() - OLD_SECONDS
    for variable, facts in api.list_announced_workers().items():
        if float(facts.get("since", 0.0)) > long_ago:
            continue
        workers = {worker.name: worker for worker in api.workers(str(facts.get("pool"))) or ()}
        worker = workers.get(str(facts.get("name")))
        if worker is None or not (worker.online or _get_last_heartbeat_time(worker) > long_ago):
            api.withdraw(variable)


def _get_last_heartbeat_time(worker: PoolWorker) -> float:
    """When the server heard of the worker last, in seconds since 1970; 0 where it does not say."""
    return datetime.fromisoformat(worker.last_heard).timestamp() if worker.last_heard else 0.0


def _run_until_signal(
    worker_type: type, pool: str, name: str, limit: int, attempts: list[str], say: Callable[[str], None]
) -> None:
    """Take stages until SIGINT or SIGTERM, and note their flow runs in `attempts`; the processes of attempts that run
    then are killed.
    """
    import anyio

    worker = worker_type(work_pool_name=pool, name=name, limit=limit, create_pool_if_not_found=False)

    begin = worker.run

    async def run(flow_run: Any, *more: Any, **named: Any) -> Any:
        attempts.append(str(flow_run.id))
        say(f"{datetime.now():%H:%M:%S} begins {flow_run.name}")
        try:
            return await begin(flow_run, *more, **named)
        finally:
            say(f"{datetime.now():%H:%M:%S} ended {flow_run.name}")

    worker.run = run

    async def until_signal() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: worker.start(printer=lambda *_: None))
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                async for _ in signals:
                    tasks.cancel_scope.cancel()
                    return

    anyio.run(until_signal)


def _deregister_worker(api: Api, pool: str, name: str, variable: str, attempts: Sequence[str]) -> None:
    """Tell the server that the worker and the attempts that still ran have ended; a server that is away is asked again,
    then left.
    """
    for left in reversed(range(LEAVING)):
        try:
            for attempt in attempts:
                run = api.flow_run(attempt)
                if run is not None and run.state not in ENDED:
                    api.set_state(attempt, "CRASHED", "its worker was stopped", force=True)
            api.withdraw(variable)
            return api.forget_worker(pool, name)
        except PlanError:
            return None  # it refuses: the workers' list on the server will find out by itself
        except Away:
            if left:
                time.sleep(LEAVING_SECONDS)
    return None
