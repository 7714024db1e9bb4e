"""Who works: each live worker with its host, devices and what it runs."""

from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from flows.workers import prefect_servers
from flows.workers.pool import raise_away_as_plan_error
from flows.workers.prefect_api import Api


@dataclass(frozen=True)
class RunningStage:
    """A stage that a worker runs, the devices that it holds, and since when (ISO 8601)."""

    stage: str
    devices: list[str]
    since: str
    phase: str = ""


@dataclass(frozen=True)
class Listed:
    """A live worker. What was not announced, as by a worker that Prefect's own command started, is empty."""

    name: str
    pool: str
    host: str = ""
    devices: list[str] = field(default_factory=list)
    limit: int = 0
    since: str = ""
    running: list[RunningStage] = field(default_factory=list)


def list_live_workers(root: Path) -> list[Listed]:
    """The live workers of all pools; PlanError without a server."""
    with closing(prefect_servers.connect_to_prefect(root)) as api, raise_away_as_plan_error():
        facts = {
            (announcement.get("pool"), announcement.get("name")): announcement
            for announcement in api.list_announced_workers().values()
        }
        running = _group_running_stages_by_worker(api)
        listed = []
        for pool in api.pools():
            for worker in api.workers(pool) or ():
                if worker.online:
                    announced = facts.get((pool, worker.name), {})
                    since = announced.get("since")
                    listed.append(
                        Listed(
                            worker.name,
                            pool,
                            str(announced.get("host", "")),
                            [str(device) for device in announced.get("devices", [])],
                            int(announced.get("limit", 0)),
                            datetime.fromtimestamp(since, UTC).isoformat() if since else "",
                            running.get(worker.name, []),
                        )
                    )
        return listed


def list_held_pool_reasons(root: Path) -> list[str]:
    """A line for each pool that hands no runs to its workers; PlanError without a server."""
    with closing(prefect_servers.connect_to_prefect(root)) as api, raise_away_as_plan_error():
        return [line for line in map(api.held, api.pools()) if line]


def _group_running_stages_by_worker(api: Api) -> dict[str, list[RunningStage]]:
    """What runs, by the worker's name."""
    by_worker: dict[str, list[RunningStage]] = {}
    for run in api.list_flow_runs(["RUNNING"]):
        status = api.status(run.id)
        stage = str((run.parameters.get("job") or {}).get("stage", run.name))
        running = RunningStage(stage, list(status.get("devices", [])), run.started, str(status.get("phase", "")))
        by_worker.setdefault(str(status.get("worker", "")), []).append(running)
    return by_worker
