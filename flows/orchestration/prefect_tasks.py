"""The stages of a flow as Prefect tasks. Prefect orders and starts them; the engine runs, restores or skips each.

    with pipeline("language", targets, set, seeds, force, where) as stage:
        stage("problems")
        stage("corpus", "problems")

submits the planned stages in this order. Which of them wait for which is dvc.yaml's graph; a flow names that too, so
that it can be read, and a test holds the two equal.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any

from prefect import Flow, State, allow_failure, get_client, get_run_logger, runtime, task
from prefect.cache_policies import NO_CACHE
from prefect.context import TaskRunContext
from prefect.futures import PrefectFuture, wait
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Cancelled, Completed, Failed, Paused, Running

from flows.engine.dvc_command import StageFailed
from flows.engine.dvc_repository import PlanError
from flows.engine.execute import Execution
from flows.engine.stage_types import PlannedStage, StageResult
from flows.params.files import ParameterError

FOR_PEOPLE = "Waiting for people"  # the name of a state
LOG_SECONDS = 0.2  # between two looks at a running stage's log
CANCEL_SECONDS = 2.0  # between two looks whether somebody has cancelled the flow run

# What `posttrain run` and sweeps have begun before they call the flow; a flow that anybody else calls begins it itself.
begun: ContextVar[Execution | None] = ContextVar("begun", default=None)


class Stages:
    """Submits planned stages as tasks; `stage(name, *needs)` in a flow calls it."""

    def __init__(self, execution: Execution | None, wrong: str = "") -> None:
        """Without an `execution` nothing runs; `wrong` says what is wrong with the flow's parameters."""
        self._execution = execution
        self._wrong = wrong
        self._planned = dict(execution.planned) if execution else {}
        self._futures: dict[str, PrefectFuture[State[object]]] = {}

    def __call__(self, name: str, *needs: str) -> None:
        """Submit the stage of this name with all its branches, as far as they are planned; `needs` names all that it
        may wait for.
        """
        for stage in self._planned.values():
            if stage.name.partition("@")[0] == name:
                self._submit_with_upstream(stage)

    def _submit_with_upstream(self, stage: PlannedStage) -> None:
        if self._execution is None or not stage.reason or stage.name in self._futures:
            return
        for name in (*stage.upstream, *stage.after):  # what a user's own dvc.yaml has in another order
            self._submit_with_upstream(self._planned[name])
        needs: list[Any] = [self._futures[name] for name in stage.upstream if name in self._futures]
        needs += [allow_failure(self._futures[name]) for name in stage.after if name in self._futures]
        stage_task: Any = bring_up_to_date.with_options(name=stage.name, task_run_name=stage.name)
        self._futures[stage.name] = stage_task.submit(stage.name, wait_for=needs)

    def end(self) -> State[object]:
        """Submit what the flow does not name, stages of the user's in dvc.yaml, and wait until all have ended; the
        state of the flow.

        StageFailed where a stage has failed.
        """
        if self._wrong:  # a state, since of an exception Prefect logs the traceback
            return Failed(message=self._wrong)
        for stage in self._planned.values():
            self._submit_with_upstream(stage)
        wait(list(self._futures.values()))
        left = {name: future.state for name, future in self._futures.items() if not future.state.is_completed()}
        if self._execution is not None and self._execution.cancelled:
            return Cancelled(message="what had finished is kept, and the next run goes on")
        if any(state.is_failed() or state.is_crashed() for state in left.values()):
            raise StageFailed(f"failed or skipped: {', '.join(left)}")
        if left:
            return Cancelled(name=FOR_PEOPLE, message=f"{', '.join(left)} wait for people")
        return Completed(message="" if self._futures else "nothing has changed")


@contextmanager
def run_pipeline(
    flow: str,
    targets: Sequence[str],
    set: Mapping[str, Any] | None = None,
    seeds: Sequence[int] | None = None,
    force: Sequence[str] | None = None,
    where: str = "",
) -> Iterator[Stages]:
    """Plan what `targets` need, and bring it up to date by the stages that the flow's body names within.

    `set` changes params.yaml first (`{"dpo.beta": 0.2}`), `force` has stages that run even if they are up to date, and
    with `where` stages that ask for a GPU run on the workers of that work pool. With `seeds` all of it happens once for
    each. A run that somebody cancels in Prefect ends its children within seconds, and the next one goes on from there.
    """
    with ExitStack() as stack:
        execution = begun.get()
        wrong = ""
        if execution is None:
            from flows import running
            from flows.orchestration import server

            try:
                execution = stack.enter_context(
                    running.open_execution_for_flow_body(flow, targets, set or {}, seeds, force, where)
                )
            except (running.WrongUseError, ParameterError) as error:
                wrong = str(error)
            token = begun.set(execution)
            stack.callback(begun.reset, token)
            if execution is not None:
                server.mark_stale_runs_crashed(execution.coordinator.root, current=runtime.flow_run.id)
        if execution is not None:
            stack.enter_context(stop_execution_on_signals(execution))
            stack.enter_context(_stop_on_prefect_cancellation(execution))
        yield Stages(execution, wrong)


def run_prefect_flow(flow: "Flow[..., Any]", execution: Execution, name: str, parameters: Mapping[str, Any]) -> None:
    """Run the flow as a run of this name over an execution that has begun."""
    token = begun.set(execution)
    try:
        # A function, since Prefect takes a text for a template, and values have braces.
        flow.with_options(flow_run_name=lambda: name)(**parameters, return_state=True)
    finally:
        begun.reset(token)


def format_flow_run_name() -> str:
    """The name of a flow run: what it does, such as `run language: dpo.beta=0.2`."""
    from flows import running

    parameters = runtime.flow_run.parameters
    changes = [f"{key}={value}" for key, value in (parameters.get("set") or {}).items()]
    seeds = [f"seeds {','.join(map(str, parameters['seeds']))}"] if parameters.get("seeds") else []
    return running.format_flow_run_title(
        runtime.flow_run.flow_name, parameters.get("targets") or (), [*changes, *seeds]
    )


@task(cache_policy=NO_CACHE, persist_result=False)
def bring_up_to_date(stage: str) -> State[object]:
    """Have the engine bring one stage up to date; its log is the task's log, and the state tells how it ended."""
    execution = begun.get()
    assert execution is not None
    future = execution.start(stage)
    logger = get_run_logger()
    shown = _Shown(stage, execution)
    for line in _iterate_log_lines(execution.coordinator.log_of(stage), future, shown.look):
        logger.info(line)
    result = future.result()
    if result.state == "paused":
        return Cancelled(name=FOR_PEOPLE, message=result.reason)
    if result.state in ("failed", "skipped"):
        raise StageFailed(result.reason)
    return Completed(name=result.state.capitalize(), message=result.reason)


class _Shown:
    """Shows in Prefect what a stage waits for: a free core or GPU as a state of the task, people as a state of the flow
    too.
    """

    def __init__(self, stage: str, execution: Execution) -> None:
        context = TaskRunContext.get()
        self._stage = stage
        self._execution = execution
        self._task_run = context.task_run if context else None
        self._waits = self._people = ""

    def look(self) -> None:
        """Tell Prefect if what is waited for has changed."""
        waits = self._execution.waiting.get(self._stage, "")
        people = self._execution.awaited.get(self._stage, "")
        if self._task_run is None or (waits, people) == (self._waits, self._people):
            return
        with (
            suppress(Exception),
            disable_client_retries(),
            get_client(sync_client=True) as client,
        ):  # it is for the page alone
            if waits != self._waits:
                client.set_task_run_state(self._task_run.id, Running(name=waits or None), force=True)
            if people != self._people and self._task_run.flow_run_id is not None:
                waiting: State[object] = Paused(name=FOR_PEOPLE, message=f"{self._stage}: {people}")
                client.set_flow_run_state(self._task_run.flow_run_id, waiting if people else Running(), force=True)
            self._waits = waits
            self._people = people


def _iterate_log_lines(log: Path, result: "Future[StageResult]", look: Callable[[], None]) -> Iterator[str]:
    """The lines of a stage's log as they are written, until the stage is done; `look` is called between two looks at
    it.
    """
    position = 0
    while True:
        last = result.done()
        if log.exists():
            with log.open(errors="replace") as file:
                position = position if position <= log.stat().st_size else 0  # the stage was begun anew
                file.seek(position)
                text = file.read()
                position = file.tell()
            yield from text.splitlines()
        if last:
            look()
            return
        wait_for([result], LOG_SECONDS)
        if not result.done():  # a stage that has ended already waits for nothing
            look()


def disable_client_retries() -> AbstractContextManager[object]:
    """Have a question to the server fail at once where it is away, without Prefect's minutes of trying again."""
    return temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0})


class ServerLostError(PlanError):
    """Prefect's server was ended while a flow needed it. Running stages finish all the same, and are kept."""


@contextmanager
def convert_errors_to_server_lost_error() -> Iterator[None]:
    """ServerLostError where Prefect's server was ended while the flow needed it."""
    from httpx import TransportError

    try:
        yield
    except (TransportError, RuntimeError) as error:
        if not isinstance(error, TransportError) and not isinstance(
            error.__cause__, TransportError
        ):  # as Prefect wraps it
            raise
        what = " ".join(str(error).split())
        raise ServerLostError(
            f"Prefect's server cannot be reached ({what}); what had finished is kept, run it again"
        ) from error


@contextmanager
def stop_execution_on_signals(execution: Execution) -> Iterator[None]:
    """On Ctrl-C or SIGTERM, stop the children at once and raise KeyboardInterrupt, which unwinds the flow."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        threading.Thread(target=execution.coordinator.stop).start()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _stop_on_prefect_cancellation(execution: Execution) -> Iterator[None]:
    """Stop the children when somebody cancels the flow run in Prefect's page, or by its API."""
    run = runtime.flow_run.id
    over = threading.Event()

    def watch() -> None:
        while not over.wait(CANCEL_SECONDS):
            with (
                suppress(Exception),
                disable_client_retries(),
                get_client(sync_client=True) as client,
            ):  # it may be away for a while
                state = client.read_flow_run(run).state
                if state is not None and (state.is_cancelling() or state.is_cancelled()):
                    execution.cancelled = True
                    execution.coordinator.stop()
                    return

    # Prefect's settings, which name the server, are those of a context
    watching = threading.Thread(target=copy_context().run, args=[watch], name="cancel", daemon=True)
    if run is not None:
        watching.start()
    try:
        yield
    finally:
        over.set()
