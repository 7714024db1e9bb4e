"""Runs planned stages side by side within the machine's cores and GPUs, and tells a watcher.

Knows nothing of Prefect: a stage's task asks here for the stage's result, whether or not the stage already runs.
"""

import os
import platform
import shlex
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from flows.engine.coordinator import Coordinator
from flows.engine.dvc_repository import PlanError
from flows.engine.judged import Judged
from flows.engine.plan import FORCED
from flows.engine.state import Event, Grant, PlannedStage, StageResult, State, Watcher
from flows.machine import devices
from flows.machine.resources import Slots


class Execution:
    """The planned stages of one run. A stage may be submitted once all that it needs has succeeded.

    With `wait` a stage that needs more judgements of people is tried again when they have come; `awaited` has such stages.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        planned: Sequence[PlannedStage],
        jobs: int | None,
        watch: Watcher,
        wait: bool = False,
    ) -> None:
        self.coordinator, self.planned = coordinator, {stage.name: stage for stage in planned}
        self.wait, self.awaited = wait, dict[str, str]()  # stage -> what it waits for, in words
        self._slots = Slots(jobs, lambda: coordinator.stopped)
        self._watch, self._ranks = watch, ranks(planned)
        if any(stage.reason and stage.gpu and not (stage.pool or stage.launcher) for stage in planned):
            try:
                devices.check(self._slots.gpus)
            except devices.DeviceError as error:
                raise PlanError(str(error)) from None
        self._telling, self._submitting = threading.Lock(), threading.Lock()
        self._futures: dict[str, Future[StageResult]] = {}
        self._skipped: dict[str, StageResult] = {}
        self._pool = ThreadPoolExecutor(max_workers=max(len(planned), 1), thread_name_prefix="stage")
        for stage in planned:
            self._tell(Event(stage.name, "waiting" if stage.reason else "up-to-date", stage.reason or ""))
            if stage.reason:
                coordinator.log_of(stage.name).unlink(missing_ok=True)

    def start_ready(self) -> None:
        """Submit every stage that waits for no other."""
        for stage in self.planned.values():
            if stage.reason and not any(self.planned[name].reason for name in stage.upstream):
                self.submit(stage.name)

    def submit(self, name: str) -> "Future[StageResult]":
        """The future of the stage's result; the first call has it start as soon as there is room."""
        with self._submitting:
            if name not in self._futures:
                self._futures[name] = self._pool.submit(self._run, self.planned[name])
            return self._futures[name]

    def results(self) -> list[StageResult]:
        """Wait until every submitted stage has ended; the result of each planned stage."""
        return [self._result(stage) for stage in self.planned.values()]

    def _result(self, stage: PlannedStage) -> StageResult:
        if stage.name in self._futures:
            return self._futures[stage.name].result()
        if stage.reason is None:
            return self.coordinator.describe(stage.name)
        return self._skipped.get(stage.name, StageResult(stage.name, "skipped", "the run was stopped"))

    def _run(self, stage: PlannedStage) -> StageResult:
        result, going_on = StageResult(stage.name, "paused"), True
        while going_on:
            seen = Judged(self.coordinator.root) if self.wait else None
            result = self._execute(stage)
            going_on = result.state == "paused" and seen is not None and self._more(seen, result)
        if result.state == "failed":
            self._leave_descendants(stage.name, "skipped", f"{stage.name} failed")
        elif result.state == "paused":
            self._leave_descendants(stage.name, "paused", f"{stage.name} waits for people")
        return result

    def _more(self, seen: Judged, result: StageResult) -> bool:
        """Wait until people have judged as much as the stage asks for; False if the run is stopped before."""
        self.awaited[result.stage] = result.reason
        try:
            return seen.await_more(result, lambda: self.coordinator.stopped)
        finally:
            del self.awaited[result.stage]

    def _execute(self, stage: PlannedStage) -> StageResult:
        forced, on_worker = stage.reason == FORCED, stage if stage.pool else None
        try:
            with self._granted(stage) as grant:
                result = self.coordinator.execute(stage.name, self._tell, grant, forced, on_worker)
        except devices.DeviceError as error:
            result = StageResult(stage.name, "failed", str(error))
        self._tell(Event(stage.name, result.state, result.reason, seconds=result.seconds, log=result.log))
        return result

    @contextmanager
    def _granted(self, stage: PlannedStage) -> Iterator[Grant]:
        """What the stage holds while it runs; on a worker or behind a launcher it holds nothing of this machine."""
        if stage.pool or stage.launcher:
            yield Grant(launcher=tuple(shlex.split(stage.launcher)))
            return

        def tell(text: str) -> None:
            self._tell(Event(stage.name, "waiting", text))

        holder = f"{stage.name} of {self.coordinator.root} (pid {os.getpid()} on {platform.node()})"
        with self._slots.hold(stage.cpu, stage.gpu, self._ranks[stage.name], holder, tell) as lease:
            yield Grant(devices.variables(lease.names) if self._slots.gpus else {}, lease.files)

    def _leave_descendants(self, cause: str, state: State, reason: str) -> None:
        """Give all that depends on a stage this state, unless another stage has kept it from running already."""
        lost = {cause}
        for stage in self.planned.values():
            if stage.name not in self._skipped and lost.intersection(stage.upstream):
                lost.add(stage.name)
                self._skipped[stage.name] = StageResult(stage.name, state, reason)
                self._tell(Event(stage.name, state, reason))

    def _tell(self, event: Event) -> None:
        with self._telling:
            self._watch(event)


def ranks(planned: Sequence[PlannedStage]) -> dict[str, int]:
    """The length of the longest chain of stages after each one; the longest chain begins first."""
    found = dict.fromkeys((stage.name for stage in planned), 0)
    for stage in reversed(planned):  # downstream before upstream
        for name in stage.upstream:
            found[name] = max(found[name], found[stage.name] + 1)
    return found
