"""The part of Prefect's REST interface that dispatch to workers needs: pools, flow runs, their state, one status
artifact, their log.

Prefect itself is not imported: that would cost the process of each attempt two seconds. What is sent and read are plain
JSON objects as Prefect 3 has them; tests/flows/workers/test_prefect_api.py fails where another version does not fit.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from flows.engine.dvc_repository import PlanError
from flows.orchestration.server import REFUSED
from tasks.common import mlflow_address

FLOW = "posttrain-stage"  # the flow that every attempt of a stage is a run of
COMMAND = "python -m flows.workers.attempt"
TIMEOUT = 10.0  # seconds for one answer
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
LEVEL = 21  # of the lines of a stage, among which Prefect writes its own at 20
# of one request
LOG_LINES = 200
LOG_BYTES = 100_000


class Away(Exception):
    """The server cannot be reached, or answers with a fault of its own; another try may succeed."""


@dataclass(frozen=True)
class PoolWorker:
    """A worker of a pool as the server knows it."""

    name: str
    online: bool
    last_heard: str


@dataclass(frozen=True)
class PrefectFlowRun:
    """A flow run: its id, its parameters, the type of its state, and when it was created (ISO 8601)."""

    id: str
    name: str
    state: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    started: str = ""


class Api:
    """A client of one Prefect server. Away where it cannot be reached, PlanError where it refuses."""

    def __init__(self, url: str, environ: Mapping[str, str] | None = None) -> None:
        self._address = url.rstrip("/")
        self.url = mlflow_address.redact_address(self._address)  # as it may be shown and kept: without a password
        environ = os.environ if environ is None else environ
        headers = dict(json.loads(environ.get("PREFECT_CLIENT_CUSTOM_HEADERS") or "{}"))
        if key := environ.get("PREFECT_API_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        name, _, password = environ.get("PREFECT_API_AUTH_STRING", "").partition(":")
        self._deployments: dict[str, str] = {}  # of each pool, once it is made
        self._client = httpx.Client(headers=headers, auth=(name, password) if name else None, timeout=TIMEOUT)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def check(self) -> None:
        """PlanError of one line unless a Prefect server answers there."""
        try:
            self._send_request("GET", "/health")
        except Away as error:
            raise PlanError(f"Prefect's server does not answer: {error}") from None

    def create_pool_if_missing(self, pool: str, template: Mapping[str, Any]) -> None:
        """Make a process work pool of this name unless there is a pool of the name."""
        if self._find_record(f"/work_pools/{pool}") is None:
            body = {"name": pool, "type": "process", "base_job_template": template}
            self._send_request("POST", "/work_pools/", body, also=(409,))

    def workers(self, pool: str) -> list[PoolWorker] | None:
        """The pool's workers; None if there is no such pool."""
        if self._find_record(f"/work_pools/{pool}") is None:
            return None
        answer = self._send_request("POST", f"/work_pools/{pool}/workers/filter", {"limit": 200})
        return [
            PoolWorker(worker["name"], worker["status"] == "ONLINE", worker.get("last_heartbeat_time") or "")
            for worker in answer
        ]

    def forget_worker(self, pool: str, name: str) -> None:
        """Take a worker that has ended off the pool's list."""
        self._send_request("DELETE", f"/work_pools/{pool}/workers/{name}", also=(404,))

    def pools(self) -> list[str]:
        """The names of all work pools."""
        return [str(pool["name"]) for pool in self._send_request("POST", "/work_pools/filter", {"limit": 200})]

    def held(self, pool: str) -> str:
        """Why the pool hands no run to its workers, however idle they are; empty where it does."""
        work_pool = self._send_request("GET", f"/work_pools/{pool}", also=(404,)) or {}
        queues = self._send_request("POST", f"/work_pools/{pool}/queues/filter", {}, also=(404,))
        default = [
            record
            for record in queues or ()
            if isinstance(record, Mapping) and record["id"] == work_pool.get("default_queue_id")
        ]
        for name, record in (
            (f"pool {pool}", work_pool),
            *((f"the queue {record['name']} of pool {pool}", record) for record in default),
        ):
            if record.get("is_paused"):
                return f"{name} is paused on Prefect's server; there it can be resumed"
            if record.get("concurrency_limit") == 0:
                return f"{name} has a concurrency limit of 0 on Prefect's server; there it can be raised"
        return ""

    def submit(self, pool: str, name: str, parameters: Mapping[str, Any], key: str) -> str:
        """Schedule an attempt in the pool; the id of its flow run.

        However often it is asked for, each `key` is one run.
        """
        state = {"type": "SCHEDULED", "state_details": {"scheduled_time": datetime.now(UTC).isoformat()}}
        body = {"name": name, "parameters": dict(parameters), "idempotency_key": key, "state": state}
        return str(
            self._send_request("POST", f"/deployments/{self._get_or_create_deployment(pool)}/create_flow_run", body)[
                "id"
            ]
        )

    def _get_or_create_deployment(self, pool: str) -> str:
        """The id of the pool's deployment, which every attempt is a run of."""
        if pool not in self._deployments:
            body = {
                "name": pool,
                "flow_id": self._send_request("POST", "/flows/", {"name": FLOW})["id"],
                "work_pool_name": pool,
                "enforce_parameter_schema": False,
                "job_variables": {"command": COMMAND},
                "description": "Stages of the pipeline, one run for each attempt at one.",
            }
            self._deployments[pool] = str(self._send_request("POST", "/deployments/", body)["id"])
        return self._deployments[pool]

    def flow_run(self, run: str) -> PrefectFlowRun | None:
        """A flow run; None if there is none of this id."""
        record = self._find_record(f"/flow_runs/{run}")
        return None if record is None else _parse_flow_run(record)

    def list_flow_runs(self, states: Sequence[str]) -> list[PrefectFlowRun]:
        """The runs of stages in one of these states, newest first."""
        body = {
            "flows": {"name": {"any_": [FLOW]}},
            "flow_runs": {"state": {"type": {"any_": list(states)}}},
            "sort": "START_TIME_DESC",
            "limit": 200,
        }
        return [_parse_flow_run(record) for record in self._send_request("POST", "/flow_runs/filter", body)]

    def set_state(self, run: str, state: str, message: str = "", force: bool = False) -> bool:
        """Ask for a state; whether the server accepted it. It lets a cancelled run begin, forced or not."""
        body = {"state": {"type": state, "name": state.capitalize(), "message": message}, "force": force}
        answer = self._send_request("POST", f"/flow_runs/{run}/set_state", body, also=(404,))
        return isinstance(answer, Mapping) and answer.get("status") == "ACCEPT"

    def states(self, run: str) -> list[str]:
        """The types of all states that the run has been in."""
        return [str(state["type"]) for state in self._send_request("GET", f"/flow_run_states/?flow_run_id={run}")]

    def post_status(self, run: str, status: Mapping[str, Any]) -> str:
        """Make the run's status artifact; its id."""
        return str(
            self._send_request(
                "POST", "/artifacts/", {"type": "posttrain", "flow_run_id": run, **_build_status_artifact(status)}
            )["id"]
        )

    def update_status(self, artifact: str, status: Mapping[str, Any]) -> None:
        """Replace the content of a status artifact."""
        self._send_request("PATCH", f"/artifacts/{artifact}", _build_status_artifact(status))

    def status(self, run: str) -> dict[str, Any]:
        """The newest content of the run's status artifact; nothing before there is one."""
        body = {"artifacts": {"flow_run_id": {"any_": [run]}}, "sort": "CREATED_DESC", "limit": 1}
        for artifact in self._send_request("POST", "/artifacts/filter", body):
            return dict(artifact["data"]) if isinstance(artifact.get("data"), Mapping) else {}
        return {}

    def write_log(self, run: str, lines: Sequence[str]) -> None:
        """Append lines to the run's log."""
        for some in _split_log_lines(lines):
            now = datetime.now(UTC)
            logs = [
                {
                    "name": FLOW,
                    "level": LEVEL,
                    "message": line,
                    "timestamp": (now + timedelta(microseconds=index)).isoformat(),  # the server sorts by it
                    "flow_run_id": run,
                }
                for index, line in enumerate(some)
            ]
            self._send_request("POST", "/logs/", logs)

    def log(self, run: str, after: int) -> list[str]:
        """The lines that `write_log` wrote but the first `after`, in their order."""
        all_lines = list[str]()
        offset = after
        while True:
            ours = {"flow_run_id": {"any_": [run]}, "level": {"ge_": LEVEL, "le_": LEVEL}}
            body = {"logs": ours, "sort": "TIMESTAMP_ASC", "offset": offset, "limit": LOG_LINES}
            lines = [str(record["message"]) for record in self._send_request("POST", "/logs/filter", body)]
            all_lines = [*all_lines, *lines]
            offset = offset + len(lines)
            if len(lines) < LOG_LINES:
                return all_lines

    def announce_worker(self, name: str, facts: Mapping[str, Any]) -> None:
        """Keep facts of a worker where every client of the server finds them."""
        self.withdraw(name)
        self._send_request("POST", "/variables/", {"name": name, "value": dict(facts), "tags": ["posttrain-worker"]})

    def withdraw(self, name: str) -> None:
        """Delete what `announce_worker` kept."""
        self._send_request("DELETE", f"/variables/name/{name}", also=(404,))

    def list_announced_workers(self) -> dict[str, dict[str, Any]]:
        """All that was announced and not withdrawn, by name."""
        body = {"variables": {"tags": {"all_": ["posttrain-worker"]}}, "limit": 200}
        variables = self._send_request("POST", "/variables/filter", body)
        return {variable["name"]: variable["value"] for variable in variables if isinstance(variable["value"], dict)}

    def _find_record(self, path: str) -> dict[str, Any] | None:
        answer = self._send_request("GET", path, also=(404,))
        return answer if answer and "id" in answer else None

    def _send_request(self, method: str, path: str, body: Any = None, also: Sequence[int] = ()) -> Any:
        """The answer's JSON; the statuses in `also` are no faults."""
        try:
            answer = self._client.request(method, self._address + path, json=body)
        except httpx.HTTPError as error:
            detail = mlflow_address.redact_secrets(" ".join(str(error).split()))
            raise Away(f"{self.url} ({type(error).__name__}: {detail})") from None
        if answer.status_code >= 500 or answer.status_code == 429:
            raise Away(f"{self.url} (status {answer.status_code})")
        if answer.status_code == 401:  # as the server of another clone answers
            raise PlanError(f"{self.url}: {REFUSED[401]}")
        if answer.is_error and answer.status_code not in also:
            detail = " ".join(answer.text.split())[:200]
            raise PlanError(f"Prefect's server at {self.url} refuses {method} {path}: {answer.status_code} {detail}")
        try:
            return answer.json() if answer.content else None
        except ValueError:
            raise PlanError(f"{self.url}: expected Prefect's API there, got something else") from None


def _parse_flow_run(record: Mapping[str, Any]) -> PrefectFlowRun:
    state = (record.get("state") or {}).get("type") or record.get("state_type") or "PENDING"
    return PrefectFlowRun(
        record["id"], record["name"], state, record.get("parameters") or {}, record.get("start_time") or ""
    )


def _build_status_artifact(status: Mapping[str, Any]) -> dict[str, Any]:
    """The status as an artifact, with a line for Prefect's pages (its metadata would be cut after 500 letters)."""
    step = status.get("step") or 0
    total = status.get("total") or 0
    line = f"step {step} of {total}" if total else str(status.get("phase") or "runs")
    return {"data": dict(status), "description": f"{line} on {status.get('worker') or status.get('host')}"}


def _split_log_lines(lines: Sequence[str]) -> Iterator[list[str]]:
    portion = list[str]()
    size = 0
    for line in lines:
        if portion and (len(portion) == LOG_LINES or size + len(line) > LOG_BYTES):
            yield portion
            portion = []
            size = 0
        portion.append(line[:LOG_BYTES] or " ")
        size += len(line)
    if portion:
        yield portion
