"""Runs planned stages side by side within the machine's cores and GPUs, and tells a watcher.

Knows nothing of Prefect, whose tasks start the stages here, each when all that it needs has succeeded.
"""

import os
import platform
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from flows.engine.dvc_repository import PlanError
from flows.engine.plan import FORCED
from flows.engine.stage_types import Event, Grant, PlannedStage, StageResult, State, Watcher
from flows.machine import devices
from flows.machine.resources import Slots

if TYPE_CHECKING:
    from flows.engine.journals.recorder_protocol import Recorder


LOOK_SECONDS = 2.0  # between two looks at the files
RECORDS = Path("data/raw")  # the folder that people's judgements come to
ASKED = re.compile(r"\bwaiting for (\d+) more\b")


class Owner(Protocol):
    """Executes stages and owns their state: the coordinator of a workspace, or another. A context manager."""

    root: Path
    recorder: "Recorder | None"

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def stop(self) -> None:
        """Stop every command: running stages fail, waiting stages never start."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        ...

    def log_of(self, name: str) -> Path:
        """The file that a stage's command writes its output to."""
        ...

    def execute(
        self,
        name: str,
        watch: Watcher,
        grant: Grant | None = None,
        force: bool = False,
        on_worker: PlannedStage | None = None,
    ) -> StageResult:
        """Bring one stage up to date; its upstream must be so already.

        A failure is part of the result, never raised.
        """
        ...

    def describe(self, name: str) -> StageResult:
        """The result of a stage that is up to date by the plan, from the records alone."""
        ...

    def close_record(self, results: Sequence[StageResult], complete: bool) -> None:
        """End the run in MLflow that the stages' runs belong to."""
        ...


class JudgementCount:
    """The number of lines in all files of JSON lines below data/raw, as it was when this was made: whether people have
    judged more since.

    What a record of judgements means only the stage that reads it knows; each judgement is a line at least.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._before = self._count_lines_by_file((str(RECORDS),))

    def wait_for_judgements(self, result: StageResult, stopped: Callable[[], bool]) -> bool:
        """Wait until the files that the stage reads may hold what it asks for; False once `stopped`."""
        match = ASKED.search(result.reason)
        wanted = int(match[1]) if match else 1
        while not stopped():
            now = self._count_lines_by_file(result.awaits)
            grown = sum(now.values()) - sum(self._before.get(file, 0) for file in now)
            if grown >= wanted or any(count < self._before.get(file, 0) for file, count in now.items()):
                return True  # fewer lines: the file was replaced, and may hold anything
            time.sleep(LOOK_SECONDS)
        return False

    def _count_lines_by_file(self, paths: tuple[str, ...]) -> dict[Path, int]:
        """The number of lines of each file."""
        locations = [self.root / path for path in paths if Path(path).is_relative_to(RECORDS)]
        files = {
            file for location in locations for file in (location.rglob("*.jsonl") if location.is_dir() else [location])
        }
        return {file: _count_lines(file) for file in files if file.suffix == ".jsonl" and file.is_file()}


def _count_lines(file: Path) -> int:
    with file.open("rb") as content:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: content.read(2**20), b""))


class Execution:
    """The planned stages of one run. Whoever starts one has seen that all that it needs has succeeded.

    With `wait` a stage that needs more judgements of people is tried again when they have come; `awaited` has such
    stages, and `waiting` those that have no free core or GPU yet, each with what it waits for in words.
    """

    def __init__(
        self,
        coordinator: Owner,
        planned: Sequence[PlannedStage],
        jobs: int | None,
        watch: Watcher,
        wait: bool = False,
    ) -> None:
        self.coordinator = coordinator
        self.planned = {stage.name: stage for stage in planned}
        self.wait = wait
        self.awaited = dict[str, str]()
        self.waiting = dict[str, str]()
        self.cancelled = False  # by somebody in Prefect
        self.ended: list[StageResult] = []  # of all stages, once the run is over
        self._slots = Slots(jobs, lambda: coordinator.stopped)
        self._watch = watch
        self._ranks = compute_stage_ranks(planned)
        if any(stage.reason and stage.gpu and not (stage.pool or stage.launcher) for stage in planned):
            try:
                devices.check_device_locks(self._slots.gpus)
            except devices.DeviceError as error:
                raise PlanError(str(error)) from None
        self._telling = threading.Lock()
        self._starting = threading.Lock()
        self._futures = {stage.name: Future[StageResult]() for stage in planned if stage.reason}
        # of these
        self._started = set[str]()
        self._left = set[str]()
        self._pool = ThreadPoolExecutor(max_workers=max(len(planned), 1), thread_name_prefix="stage")
        for stage in planned:
            self._notify_watcher(Event(stage.name, "waiting" if stage.reason else "up-to-date", stage.reason or ""))
            if stage.reason:
                coordinator.log_of(stage.name).unlink(missing_ok=True)

    def start(self, name: str) -> "Future[StageResult]":
        """Bring a stage up to date, unless it was started already or cannot run any more; the future of its result."""
        with self._starting:
            new = name not in self._started and name not in self._left
            if new:
                self._started.add(name)
        if new:
            self._pool.submit(self._run_and_set_future, self.planned[name])
        return self._futures[name]

    def results(self) -> list[StageResult]:
        """Wait until every stage that was started has ended; the result of each planned stage."""
        return [self._wait_for_stage_result(stage) for stage in self.planned.values()]

    def _wait_for_stage_result(self, stage: PlannedStage) -> StageResult:
        if stage.reason is None:
            return self.coordinator.describe(stage.name)
        if stage.name in self._started or stage.name in self._left:
            return self._futures[stage.name].result()
        return StageResult(stage.name, "skipped", "the run was stopped")

    def _run_and_set_future(self, stage: PlannedStage) -> None:
        """Bring a stage to its end, give those that can no longer run their results, and set its future."""
        try:
            result = self._execute_until_judged(stage)
            if result.state == "failed":
                self._set_descendant_results(stage.name, "skipped", f"{stage.name} failed")
            elif result.state == "paused":
                self._set_descendant_results(stage.name, "paused", f"{stage.name} waits for people")
            elif result.state == "behind":
                self._set_descendant_results(stage.name, "behind", f"{stage.name} is behind")
        except BaseException as error:
            self._futures[stage.name].set_exception(error)
        else:
            self._futures[stage.name].set_result(result)

    def _execute_until_judged(self, stage: PlannedStage) -> StageResult:
        while True:
            seen = JudgementCount(self.coordinator.root) if self.wait else None
            result = self._execute_with_grant(stage)
            if result.state != "paused" or seen is None or not self._wait_for_judgements(seen, result):
                return result

    def _wait_for_judgements(self, seen: JudgementCount, result: StageResult) -> bool:
        """Wait until people have judged as much as the stage asks for; False if the run is stopped before."""
        self.awaited[result.stage] = result.reason
        try:
            return seen.wait_for_judgements(result, lambda: self.coordinator.stopped)
        finally:
            del self.awaited[result.stage]

    def _execute_with_grant(self, stage: PlannedStage) -> StageResult:
        forced = stage.reason == FORCED
        on_worker = stage if stage.pool else None
        try:
            with self._hold_resources(stage) as grant:
                result = self.coordinator.execute(stage.name, self._notify_watcher, grant, forced, on_worker)
        except devices.DeviceError as error:
            result = StageResult(stage.name, "failed", str(error))
        self._notify_watcher(Event(stage.name, result.state, result.reason, seconds=result.seconds, log=result.log))
        return result

    @contextmanager
    def _hold_resources(self, stage: PlannedStage) -> Iterator[Grant]:
        """What the stage holds while it runs; on a worker or behind a launcher it holds nothing of this machine."""
        if stage.pool or stage.launcher:
            yield Grant(launcher=tuple(shlex.split(stage.launcher)))
            return

        def tell(text: str) -> None:
            self._notify_watcher(Event(stage.name, "waiting", text))

        holder = f"{stage.name} of {self.coordinator.root} (pid {os.getpid()} on {platform.node()})"
        self.waiting[stage.name] = "Waiting for a GPU" if stage.gpu else "Waiting for a core"
        with self._slots.hold(stage.cpu, stage.gpu, self._ranks[stage.name], holder, tell) as lease:
            del self.waiting[stage.name]
            yield Grant(devices.build_device_environment(lease.names) if self._slots.gpus else {}, lease.files)

    def _set_descendant_results(self, cause: str, state: State, reason: str) -> None:
        """Give all that depends on a stage this state, unless another stage has kept it from running already."""
        lost = {cause}
        for stage in self.planned.values():
            if stage.reason and lost.intersection(stage.upstream):
                lost.add(stage.name)
                with self._starting:
                    if stage.name in self._left:
                        continue
                    self._left.add(stage.name)
                self._notify_watcher(Event(stage.name, state, reason))
                self._futures[stage.name].set_result(StageResult(stage.name, state, reason))

    def _notify_watcher(self, event: Event) -> None:
        with self._telling:
            self._watch(event)


def compute_stage_ranks(planned: Sequence[PlannedStage]) -> dict[str, int]:
    """The length of the longest chain of stages after each one; the longest chain begins first."""
    chain_lengths = dict.fromkeys((stage.name for stage in planned), 0)
    for stage in reversed(planned):  # downstream before upstream
        for name in stage.upstream:
            chain_lengths[name] = max(chain_lengths[name], chain_lengths[stage.name] + 1)
    return chain_lengths
