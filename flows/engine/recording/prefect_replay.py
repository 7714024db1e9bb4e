"""Writes to Prefect's history in mlruns/ what a journal says, at the times when it was: a flow run, task runs, their states and logs.

Prefect's interface over HTTP gives a state the time at which it arrives, so that the functions behind it are called here, by which its
server writes to its database. They were written for Prefect 3.8; tests/flows/test_language_model.py fails where another version does not fit.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar
from uuid import NAMESPACE_OID, UUID, uuid4, uuid5

from flows.engine.prefect_server import FOR_PEOPLE
from flows.engine.recording.journal import Event

if TYPE_CHECKING:
    from prefect.server.schemas.states import State
    from sqlalchemy.ext.asyncio import AsyncSession

INFO = 20
KILLED = "its process was killed"
OF_IT = "(SELECT event_id FROM event_resources WHERE resource_id = :run)"
DELETE_EVENTS = (f"DELETE FROM events WHERE id IN {OF_IT}", f"DELETE FROM event_resources WHERE event_id IN {OF_IT}")
T = TypeVar("T")


class Database:
    """Prefect's database, which is made if there is none. The environment must name it before Prefect is imported."""

    def __init__(self) -> None:
        from prefect.server.database import provide_database_interface

        self._loop, self._database = asyncio.new_event_loop(), provide_database_interface()
        self._loop.run_until_complete(self._database.create_db())

    def close(self) -> None:
        """Close the connections."""
        self._loop.run_until_complete(self._close())
        self._loop.close()

    async def _close(self) -> None:
        await (await self._database.engine()).dispose()

    def __call__(self, act: "Callable[[AsyncSession], Awaitable[T]]") -> T:
        """The result of what is done in one transaction."""

        async def acted() -> T:
            async with self._database.session_context(begin_transaction=True) as session:
                return await act(session)

        return self._loop.run_until_complete(acted())


@contextmanager
def replay(event: Event) -> Iterator["Replay"]:
    """Records one run of a flow; `event` is its journal's first one."""
    database = Database()
    try:
        yield Replay(database, event)
    finally:
        database.close()


class Replay:
    """One run of a flow. A run that was recorded in part before a kill is recorded anew in place of that."""

    def __init__(self, database: Database, event: Event) -> None:
        self._do, self._flow_run, at = database, _id(event["run"]), moment(event)
        self._logs: dict[str, _Log] = {}  # by the run in MLflow
        self._stages: dict[str, str] = {}
        self._running, self._ended = set[str](), set[str]()
        late = [stage for stage in event["stages"] if stage["reason"]]
        self._tasks = {stage["name"]: _id(f"{event['run']} {stage['name']}") for stage in late}
        self._last = dict.fromkeys([self._flow_run, *self._tasks.values()], at)  # the time of each run's last state
        upstream = {stage["name"]: [up for up in stage["upstream"] if up in self._tasks] for stage in late}
        self._do(_end_stale_runs)
        self._do(lambda session: self._create(session, event["flow"], upstream, at))
        self._set_flow("RUNNING", at)

    async def _create(
        self, session: "AsyncSession", flow: str, upstream: Mapping[str, list[str]], at: datetime
    ) -> None:
        from prefect.server.schemas.core import Flow, FlowRun, TaskRun
        from prefect.server.schemas.filters import LogFilter, LogFilterFlowRunId
        from sqlalchemy import text

        models, logs = _models(), LogFilter(flow_run_id=LogFilterFlowRunId(any_=[self._flow_run]))
        await models.logs.delete_logs(session, log_filter=logs)
        of_it = {"run": f"prefect.flow-run.{self._flow_run}"}
        for statement in DELETE_EVENTS:
            await session.execute(text(statement), of_it)
        await models.flow_runs.delete_flow_run(session, self._flow_run)
        known = await models.flows.create_flow(session, Flow(name=flow))
        run = {"id": self._flow_run, "flow_id": known.id, "expected_start_time": at, "state": _state("PENDING", at)}
        await models.flow_runs.create_flow_run(session, FlowRun.model_validate(run))
        for name, needs in upstream.items():
            task = {
                "id": self._tasks[name],
                "flow_run_id": self._flow_run,
                **dict.fromkeys(("name", "task_key", "dynamic_key"), name),
                "expected_start_time": at,
                "task_inputs": {"wait_for": [{"input_type": "task_run", "id": self._tasks[need]} for need in needs]},
                "state": _state("PENDING", at),
            }
            await models.task_runs.create_task_run(session, TaskRun.model_validate(task))

    def write(self, event: Event, folder: Path) -> None:
        """Write one event of the journal in `folder`."""
        kind, at = event["kind"], moment(event)
        if kind == "start":
            self._stages[event["run"]] = event["stage"]
            self._begin(event["stage"], at)
        elif kind == "follow":
            self._logs[event["run"]] = _Log(Path(event["log"]))
        elif kind == "end_run" and (log := self._logs.pop(event["run"], None)):
            self._send(event["run"], log.rest(folder / event["run"] / event["log"]), at)
        elif kind == "ended":
            self._end(event["result"], at)
        elif kind == "awaits" and event["line"]:
            self._set_flow("PAUSED", at, f"{event['stage']}: {event['line']}", FOR_PEOPLE)
        elif kind == "awaits":
            self._set_flow("RUNNING", at)
        elif kind == "close":
            self._close(event, at)

    def follow(self) -> None:
        """Write what running stages have written to their logs since."""
        for run, log in self._logs.items():
            self._send(run, log.new(), datetime.now(UTC))

    def abandon(self, time: int) -> None:
        """The process that ran it was killed at this time, in milliseconds."""
        at = datetime.fromtimestamp(time / 1000, UTC)
        for name in sorted(self._running - self._ended):
            self._set_task(name, "CRASHED", at, KILLED)
        self._set_flow("CRASHED", at, KILLED)

    def _begin(self, name: str, at: datetime) -> None:
        if name in self._tasks and name not in self._running:
            self._running.add(name)
            self._set_task(name, "RUNNING", at)

    def _end(self, result: Mapping[str, Any], at: datetime) -> None:
        name, state, reason = result["stage"], result["state"], result["reason"]
        if name not in self._tasks or name in self._ended:
            return
        self._ended.add(name)
        if state == "skipped":
            self._set_task(name, "PENDING", at, reason, "NotReady")
            return
        self._begin(name, datetime.fromtimestamp(at.timestamp() - result["seconds"], UTC))
        if state == "failed":
            self._set_task(name, "FAILED", at, reason)
        elif state == "paused":
            self._set_task(name, "CANCELLED", at, reason, FOR_PEOPLE)
        else:
            self._set_task(name, "COMPLETED", at, reason, state.capitalize())

    def _close(self, event: Event, at: datetime) -> None:
        for result in event["results"]:
            self._end(result, at)
        states = {result["stage"]: result["state"] for result in event["results"]}
        lost = [stage for stage, state in states.items() if state in ("failed", "skipped")]
        waiting = [stage for stage, state in states.items() if state == "paused"]
        if not event["complete"]:
            self._set_flow("CRASHED", at, "the run was stopped")
        elif lost:
            self._set_flow("FAILED", at, f"failed or skipped: {', '.join(lost)}")
        elif waiting:
            self._set_flow("CANCELLED", at, f"{', '.join(waiting)} wait for people", FOR_PEOPLE)
        else:
            self._set_flow("COMPLETED", at)

    def _set_flow(self, kind: str, at: datetime, message: str = "", name: str | None = None) -> None:
        self._set(_models().flow_runs.set_flow_run_state, "flow-run", self._flow_run, _state(kind, at, message, name))

    def _set_task(self, task: str, kind: str, at: datetime, message: str = "", name: str | None = None) -> None:
        self._set(
            _models().task_runs.set_task_run_state, "task-run", self._tasks[task], _state(kind, at, message, name)
        )

    def _set(self, setting: "Callable[..., Awaitable[object]]", what: str, run: UUID, state: "State") -> None:
        from prefect.server.events.schemas.events import ReceivedEvent
        from prefect.server.events.storage.database import write_events

        last = self._last.get(run)  # of a run no two states may have the same time
        if last is not None and state.timestamp <= last:
            state = state.model_copy(update={"timestamp": last + timedelta(microseconds=1)})
        self._last[run] = state.timestamp
        facts = {"state-name": state.name or "", "state-type": state.type.value, "state-message": state.message or ""}
        told = {
            "id": uuid4(),
            "occurred": state.timestamp,
            "event": f"prefect.{what}.{state.name}",
            "resource": {
                "prefect.resource.id": f"prefect.{what}.{run}",
                **{f"prefect.{key}": value for key, value in facts.items()},
            },
            "related": [
                {"prefect.resource.id": f"prefect.flow-run.{self._flow_run}", "prefect.resource.role": "flow-run"}
            ],
        }
        event = ReceivedEvent.model_validate(told)

        async def act(session: "AsyncSession") -> None:
            await setting(session, run, state, force=True)
            await write_events(session, [event])

        self._do(act)

    def _send(self, run: str, lines: list[str], at: datetime) -> None:
        from prefect.server.schemas.actions import LogCreate

        task = self._tasks.get(self._stages[run])
        facts = {
            "name": "posttrain",
            "level": INFO,
            "timestamp": at,
            "flow_run_id": self._flow_run,
            "task_run_id": task,
        }
        rows = [LogCreate.model_validate({**facts, "message": line}) for line in lines]
        if rows:
            self._do(lambda session: _models().logs.create_logs(session, rows))


async def _end_stale_runs(session: "AsyncSession") -> None:
    """Mark flow runs that the history has as running as crashed: a clone has only one run at a time."""
    from prefect.server.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
    from prefect.server.schemas.states import StateType

    kinds = FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING, StateType.PAUSED])
    left = FlowRunFilter(state=FlowRunFilterState(type=kinds))
    runs = _models().flow_runs
    for run in await runs.read_flow_runs(session, flow_run_filter=left):
        await runs.set_flow_run_state(session, run.id, _state("CRASHED", datetime.now(UTC), KILLED), force=True)


def _models() -> Any:
    """The functions by which Prefect's server writes; what they return has types that mypy cannot see."""
    from prefect.server import models

    return models


def _state(kind: str, at: datetime, message: str = "", name: str | None = None) -> "State":
    from prefect.server.schemas.states import State, StateType

    facts = {"type": StateType(kind), "name": name, "message": message or None, "timestamp": at}
    return State.model_validate(facts)


def _id(text: str) -> UUID:
    return uuid5(NAMESPACE_OID, f"posttrain {text}")


def moment(event: Event) -> datetime:
    """When an event was."""
    return datetime.fromtimestamp(event["time"] / 1000, UTC)


class _Log:
    """The log of a running stage. It stays this stage's, even if the next run begins a file of the same name."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0
        self._file: BinaryIO | None = None

    def new(self) -> list[str]:
        """The whole lines that were not read yet."""
        if self._file is None and self._path.exists():
            self._file = self._path.open("rb")
        return self._lines(self._file, False) if self._file else []

    def rest(self, kept: Path) -> list[str]:
        """All lines that were not read yet, from the file in which they are kept after the end."""
        try:
            with kept.open("rb") as file:
                if self._file and not os.path.sameopenfile(self._file.fileno(), file.fileno()):
                    self._read = 0  # a copy, or what was read was another's
                return self._lines(file, True)
        except OSError:
            return []
        finally:
            if self._file:
                self._file.close()

    def _lines(self, file: BinaryIO, last: bool) -> list[str]:
        file.seek(self._read)
        text = file.read()
        whole = text if last else text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return whole.decode(errors="replace").splitlines()
