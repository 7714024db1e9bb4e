"""Has an execution's stages run in the order that their graph asks for, as Prefect's tasks do, without Prefect."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from flows.engine.execute import Execution
from flows.engine.stage_types import PlannedStage, StageResult

LOST = ("failed", "paused", "skipped", "behind")


def start(execution: Execution) -> Callable[[], list[StageResult]]:
    """Start each stage when all that it needs has succeeded; what is returned waits for the end, and has the
    results.
    """
    late = [stage for stage in execution.planned.values() if stage.reason]
    succeeded: dict[str, Future[bool]] = {}

    def bring(stage: PlannedStage) -> bool:
        for name in stage.after:
            if name in succeeded:
                succeeded[name].result()
        if not all(succeeded[name].result() for name in stage.upstream if name in succeeded):
            return False
        return execution.start(stage.name).result().state not in LOST

    pool = ThreadPoolExecutor(max(len(late), 1))
    for stage in late:  # upstream before downstream
        succeeded[stage.name] = pool.submit(bring, stage)

    def results() -> list[StageResult]:
        pool.shutdown()
        return execution.results()

    return results


def run(execution: Execution) -> list[StageResult]:
    """The results of all stages, at the end."""
    return start(execution)()
