"""Planned stages as one Prefect flow: a task for each stage that may run, waiting for the tasks of its upstream.

With a Prefect server of the user's the flow is that server's from the beginning: the first stages start at once, and their tasks follow when the server has
answered. Otherwise neither Prefect nor MLflow is imported here: the run keeps a journal, from which another process records the same.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.engine.coordinator import Coordinator, Elsewhere
from flows.engine.dvc_command import StageFailed
from flows.engine.dvc_repository import PlanError
from flows.engine.execute import Execution, Owner
from flows.engine.prefect_server import FOR_PEOPLE, be_quiet, may_be_configured, temporary_server, using
from flows.engine.recording import journal, settling
from flows.engine.recording.journalled_run import JournalledRun
from flows.engine.recording.recorder import Recorder
from flows.engine.state import PlannedStage, StageResult, Watcher
from flows.engine.warm_stages import warm_starts
from flows.machine.warm_start import WarmStarts
from tasks.common import mlflow_address
from tasks.common.source_code import Source

if TYPE_CHECKING:
    from prefect import Flow, Task
    from prefect.client.schemas.objects import State

LOOK_SECONDS = 0.2  # between two looks at a running stage's log


def run_flow(
    root: Path,
    planned: Sequence[PlannedStage],
    *,
    flow_name: str,
    jobs: int | None,
    watch: Watcher,
    workers: Elsewhere | None = None,
    wait: bool = False,
    cold: bool = False,
    owner: Callable[[WarmStarts | None], Owner] | None = None,
    source: Source | None = None,
    settled: bool = True,
) -> list[StageResult]:
    """Execute the plan and record it; after a failure only the failed stage's descendants are skipped. Ctrl-C stops all children.

    A stage that needs more judgements of people leaves its descendants aside in the same way, or with `wait` is waited for. Where several stages run,
    they start warm, or with `cold` each in a new process. `owner` makes what executes the stages, where that is not a Coordinator of the workspace;
    `source` is the code that it runs, where that is not the workspace's. MLflow's and Prefect's records in mlruns/ are written by another process, for
    which the call waits unless `settled` is False; those elsewhere are written as the run goes on.
    """
    root = root.absolute()
    be_quiet()
    with ExitStack() as stack:
        warm = None if cold else warm_starts(planned)
        coordinator = stack.enter_context(owner(warm) if owner else Coordinator(root, workers=workers, warm=warm))
        stack.enter_context(_stopped_by_signals(coordinator))
        elsewhere = mlflow_address.shared(root) is not None or may_be_configured(root)
        if elsewhere:
            server = temporary_server(root)
            if server is not None:
                stack.callback(server.stop)
            from flows.engine.mlflow_recording import FlowRun  # takes seconds, while the server starts

            recorder: Recorder = FlowRun(root, flow_name, source)
        else:
            recorder = JournalledRun(root, flow_name, planned, source)
            stack.callback(recorder.leave)
        coordinator.recorder = recorder
        execution = Execution(coordinator, planned, jobs, watch, wait)
        complete = False
        try:
            execution.start_ready()
            if elsewhere:
                with _reachable(), using(server, root):
                    _flow(flow_name, execution)(return_state=True)
            else:
                execution.join()
            if coordinator.stopped:  # an interrupt that came where Python or Prefect drops it
                raise KeyboardInterrupt
            complete = True
        finally:
            coordinator.stop()
            results = execution.results()
            for result in results:
                result.pipeline_run_id = recorder.parent
            try:
                coordinator.close_record(results, complete)
            except PlanError as error:
                results[0].unrecorded = results[0].unrecorded or str(error)
            if settled and not elsewhere:
                _settle(root, recorder.parent, results)
        return results


def _settle(root: Path, run: str, results: Sequence[StageResult]) -> None:
    """Wait until all is recorded, and note what is missing with the stages."""
    try:
        settling.settle(root, wholly=True)
    except PlanError as error:
        results[0].unrecorded = results[0].unrecorded or str(error)
    faults = {fault["stage"]: fault["text"] for fault in journal.take_faults(root, run)}
    for result in results:
        result.unrecorded = result.unrecorded or faults.pop(result.stage, "")
    for text in faults.values():
        results[0].unrecorded = results[0].unrecorded or text


@contextmanager
def _reachable() -> Iterator[None]:
    """PlanError where Prefect's server was ended while the flow needed it."""
    from httpx import TransportError

    try:
        yield
    except (TransportError, RuntimeError) as error:
        if not isinstance(error, TransportError) and not isinstance(
            error.__cause__, TransportError
        ):  # as Prefect wraps it
            raise
        what = " ".join(str(error).split())
        raise PlanError(
            f"Prefect's server cannot be reached ({what}); what had finished is kept, run it again"
        ) from error


def _flow(name: str, execution: Execution) -> "Flow[[], State[object] | None]":
    from prefect import flow
    from prefect.futures import PrefectFuture, wait
    from prefect.states import Cancelled
    from prefect.task_runners import ThreadPoolTaskRunner

    runner: Any = ThreadPoolTaskRunner(max_workers=len(execution.planned))

    @flow(name=name, task_runner=runner, validate_parameters=False)
    def pipeline() -> "State[object] | None":
        tasks: dict[str, PrefectFuture[State[object]]] = {}
        with _stopped_by_signals(execution.coordinator):  # again, since Prefect's own handler would wait for the stages
            for stage in execution.planned.values():
                if stage.reason:
                    upstream = [tasks[name] for name in stage.upstream if name in tasks]
                    tasks[stage.name] = _task(stage.name, execution).submit(wait_for=upstream)
            wait(list(tasks.values()))
        left = {name: task.state for name, task in tasks.items() if not task.state.is_completed()}
        if any(state.is_failed() or state.is_crashed() for state in left.values()):
            raise StageFailed(f"failed or skipped: {', '.join(left)}")
        if left:
            return Cancelled(name=FOR_PEOPLE, message=f"{', '.join(left)} wait for people")
        return None

    return pipeline


def _task(name: str, execution: Execution) -> "Task[..., State[object]]":
    from prefect import get_run_logger, task
    from prefect.cache_policies import NO_CACHE
    from prefect.states import Cancelled, Completed

    @task(name=name, task_run_name=name, cache_policy=NO_CACHE, persist_result=False)
    def stage() -> "State[object]":
        future, logger = execution.future(name), get_run_logger()
        shown = _Waiting(name, execution)
        for line in _follow(execution.coordinator.log_of(name), future, shown.look):
            logger.info(line)
        result = future.result()
        if result.state == "paused":
            return Cancelled(name=FOR_PEOPLE, message=result.reason)
        if result.state in ("failed", "skipped"):
            raise StageFailed(result.reason)
        return Completed(name=result.state.capitalize(), message=result.reason)

    return stage


class _Waiting:
    """Shows in Prefect that the flow is paused while a stage of it waits for people, and runs again when it does not."""

    def __init__(self, stage: str, execution: Execution) -> None:
        from prefect.context import TaskRunContext

        context = TaskRunContext.get()
        self.stage, self.execution = stage, execution
        self.flow_run = context.task_run.flow_run_id if context else None
        self.shown = ""

    def look(self) -> None:
        """Tell Prefect if what is waited for has changed."""
        from prefect import get_client
        from prefect.states import Paused, Running

        waits = self.execution.awaited.get(self.stage, "")
        if waits == self.shown or self.flow_run is None:
            return
        self.shown = waits
        state: State[object] = Paused(name=FOR_PEOPLE, message=f"{self.stage}: {waits}") if waits else Running()
        with get_client(sync_client=True) as client:
            client.set_flow_run_state(self.flow_run, state, force=True)


def _follow(log: Path, result: "Future[StageResult]", look: Callable[[], None] = lambda: None) -> Iterator[str]:
    """The lines of a stage's log as they are written, until the stage is done; `look` is called between two looks at it."""
    position = 0
    while True:
        look()
        last = result.done()
        if log.exists():
            with log.open(errors="replace") as file:
                position = position if position <= log.stat().st_size else 0  # the stage was begun anew
                file.seek(position)
                text = file.read()
                position = file.tell()
            yield from text.splitlines()
        if last:
            return
        wait_for([result], LOOK_SECONDS)


@contextmanager
def _stopped_by_signals(coordinator: Owner) -> Iterator[None]:
    """On Ctrl-C or SIGTERM, stop the children at once and raise KeyboardInterrupt, which unwinds the flow."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        threading.Thread(target=coordinator.stop).start()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
