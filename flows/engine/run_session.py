"""One run of planned stages from its beginning to its record: the coordinator of the workspace or another owner, and
what MLflow gets.

Knows nothing of Prefect; whoever has the context starts the stages.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from flows.engine.coordinator import Coordinator, Elsewhere
from flows.engine.dvc_repository import PlanError
from flows.engine.execute import Execution, Owner
from flows.engine.journals import journal, replay_process
from flows.engine.journals.journalled_run import JournalledRun
from flows.engine.journals.recorder_protocol import Recorder
from flows.engine.stage_types import PlannedStage, StageResult, Watcher
from flows.engine.warm_stages import prepare_warm_starts
from flows.machine.warm_start import WarmStarts
from tasks.common import mlflow_address
from tasks.common.source_code import CodeState


@contextmanager
def open_recorded_execution(
    root: Path,
    planned: Sequence[PlannedStage],
    *,
    flow: str,
    jobs: int | None,
    watch: Watcher,
    workers: Elsewhere | None = None,
    wait: bool = False,
    cold: bool = False,
    owner: Callable[[WarmStarts | None], Owner] | None = None,
    source: CodeState | None = None,
    settled: bool = True,
) -> Iterator[Execution]:
    """Yield what executes the plan, and record it all at the end; its `ended` then has the results. At the end no child
    is left.

    After a failure only the failed stage's descendants are skipped. A stage that needs more judgements of people leaves
    its descendants aside in the same way, or with `wait` is waited for. Where several stages run, they start warm, or
    with `cold` each in a new process. `owner` makes what executes the stages, where that is not a Coordinator of the
    workspace; `source` is the code that it runs, where that is not the workspace's. MLflow's records in mlruns/ are
    written by another process, for which the end waits unless `settled` is False; those elsewhere are written as the
    run goes on. KeyboardInterrupt where the run was stopped.
    """
    root = root.absolute()
    with ExitStack() as stack:
        warm = None if cold else prepare_warm_starts(planned)
        coordinator = stack.enter_context(owner(warm) if owner else Coordinator(root, workers=workers, warm=warm))
        elsewhere = mlflow_address.find_shared_address(root) is not None
        if elsewhere:
            from flows.engine.mlflow_flow_recorder import FlowRecorder  # takes seconds

            recorder: Recorder = FlowRecorder(root, flow, source)
        else:
            recorder = JournalledRun(root, flow, source)
            stack.callback(recorder.leave)
        coordinator.recorder = recorder
        execution = Execution(coordinator, planned, jobs, watch, wait)
        complete = False
        try:
            yield execution
            if coordinator.stopped:  # an interrupt that came where Python or Prefect drops it, or a cancelled flow run
                raise KeyboardInterrupt
            complete = True
        finally:
            coordinator.stop()
            results = execution.ended = execution.results()
            for result in results:
                result.pipeline_run_id = recorder.parent
            try:
                coordinator.close_record(results, complete)
            except PlanError as error:
                results[0].unrecorded = results[0].unrecorded or str(error)
            if settled and not elsewhere:
                _wait_for_recording(root, recorder.parent, results)


def _wait_for_recording(root: Path, run: str, results: Sequence[StageResult]) -> None:
    """Wait until all is recorded, and note what is missing with the stages."""
    try:
        replay_process.wait_for_recorded_runs(root)
    except PlanError as error:
        results[0].unrecorded = results[0].unrecorded or str(error)
    faults = {fault["stage"]: fault["text"] for fault in journal.pop_recording_faults(root, run)}
    for result in results:
        result.unrecorded = result.unrecorded or faults.pop(result.stage, "")
    for text in faults.values():
        results[0].unrecorded = results[0].unrecorded or text
