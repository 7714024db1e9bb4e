"""One flow of a run from its plan to its results and pages: what is out of date is executed, shown, and recorded."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from flows import device_memory
from flows.console.display import create_progress_display
from flows.console.summary import GOOD, format_relative_path, load_report_headlines, print_run_results, print_stage_plan
from flows.console.usage_errors import WrongUseError, convert_errors_to_wrong_use
from flows.engine.journals import replay_process
from flows.engine.stage_types import PlannedStage, StageResult, Watcher
from flows.params.files import parse_params, read_text
from flows.params_overlay import Laid
from flows.web import run_page
from tasks.common import mlflow_address

if TYPE_CHECKING:
    from flows.engine.execute import Execution
    from flows.lineage.expected_durations import ExpectedDuration
    from flows.lineage.new_judgements import Before
    from flows.orchestration.server import Server
    from flows.workers.dispatch import Dispatch


@dataclass(frozen=True)
class How:
    """The ways in which `run` may bring flows up to date, under its own names for them."""

    jobs: int | None = None
    dry_run: bool = False
    with_runs: bool = False
    with_patch: bool = False
    wait: bool = False
    cold: bool = False


@dataclass
class Begun:
    """A flow whose stages are being brought up to date: what executes them, if any has to run, and at the end the
    results.
    """

    flow: str
    execution: "Execution | None" = None
    server: "Server | None" = None  # the repository's own
    lost: str = ""  # that Prefect's server was lost on the way, in words
    results: list[StageResult] = field(default_factory=list)


@contextmanager
def open_flow_run(
    root: Path,
    console: Console,
    flow: str,
    planned: Sequence[PlannedStage],
    how: How,
    edit: Laid,
    began: float,
) -> Iterator[Begun]:
    """Show what is out of date, or yield what executes it, and at the end write the flow's pages.

    No results where nobody needs them.
    """
    part = Begun(flow)
    unchanged = all(stage.reason is None for stage in planned)
    shown = unchanged and not run_page.has_outdated_pages(root, planned)
    if unchanged:
        seconds = time.monotonic() - began
        console.print(f"nothing has changed: {len(planned)} stages are up to date ({seconds:.1f} s)")
        with convert_errors_to_wrong_use():
            if not how.dry_run:
                _end_killed_runs(root, flow)
            part.results = _build_unchanged_results(root, planned) if how.with_runs or not shown else []
        yield part
    elif how.dry_run:
        print_stage_plan(console, planned)
        part.results = [_build_planned_result(stage) for stage in planned]
        yield part
    else:
        params = read_text(root / "params.yaml")  # as the run begins
        with convert_errors_to_wrong_use():
            mlflow_address.find_shared_address(root)  # AddressError before anything is started
        with ExitStack() as stack:
            part.server = stack.enter_context(open_prefect_server(root, console))
            print_lines(
                console,
                (*device_memory.list_device_memory_problems(root, planned), *_list_unrecorded_code_remarks(root)),
            )
            before = _load_state_before_judgements(root, planned)
            expected = _expect_durations(root, planned, params)
            display = create_progress_display(console, planned, root, expected, how.jobs)
            stack.enter_context(_execute_planned_stages(root, part, planned, how, edit.wrap_watcher(display), display))
            yield part
        print_run_results(console, part.results, root, time.monotonic() - began)
        if before is not None:
            _print_new_judgements(root, console, before, planned, part.results)
    if not how.dry_run and not shown:
        pages = run_page.write_report_pages(root, planned, part.results)
        print_lines(console, () if console.quiet else replay_process.pop_recording_problems(root))
        print_lines(console, (f"{page.stem.rpartition('_')[2]}: {format_relative_path(page, root)}" for page in pages))
        if not unchanged:
            _record_pipeline_summary(root, console, flow, params, planned, part.results, pages)
    if unchanged or not how.dry_run:
        good = {result.stage for result in part.results if result.state in GOOD}
        print_lines(console, load_report_headlines(root, {stage.name for stage in planned} if unchanged else good))


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines that may hold anything."""
    for line in lines:
        console.print(line, markup=False)


@contextmanager
def open_server_starter(root: Path, wanted: bool) -> Iterator[Callable[[], None]]:
    """Yields what starts the repository's own server, if it is wanted, while its run still plans.

    A second call does nothing, nor does the first where the user may have configured another server.
    """
    with ExitStack() as stack:
        started: list[Server] = []

        def start() -> None:
            if not wanted:
                return
            from flows.orchestration import server

            if not (started or server.is_within_flow_run() or server.can_have_configured_server(root)):
                started.append(server.Server(root))
                stack.callback(started[0].close)

        yield start


@contextmanager
def open_prefect_server(root: Path, console: Console) -> Iterator["Server | None"]:
    """The Prefect server of a run, which may still be starting; None for one that the user has configured, or within a
    flow run.
    """
    from flows.orchestration import server

    if server.is_within_flow_run():
        yield None
        return
    server.set_prefect_mlflow_env_defaults(root)
    with convert_errors_to_wrong_use():
        in_use = server.start_own_server_unless_configured(root, partial(console.print, markup=False))
    try:
        yield in_use
    finally:
        if in_use is not None:
            in_use.close()


@contextmanager
def _execute_planned_stages(
    root: Path,
    part: Begun,
    planned: Sequence[PlannedStage],
    how: How,
    watch: Watcher,
    display: AbstractContextManager[Any],
) -> Iterator[None]:
    """Have `part` execute what is planned, and take its results at the end."""
    from flows.engine.run_session import open_recorded_execution

    with ExitStack() as stack:
        workers = _prepare_worker_dispatch(root, planned, how.with_patch)
        if workers is not None:
            stack.callback(workers.close)
        stack.enter_context(display)
        stack.enter_context(convert_errors_to_wrong_use())
        execution = open_recorded_execution(
            root,
            planned,
            flow=part.flow,
            jobs=how.jobs,
            watch=watch,
            workers=workers,
            wait=how.wait,
            cold=how.cold,
            settled=how.with_runs,
        )
        part.execution = stack.enter_context(execution)
        yield
    part.results = part.execution.ended


def _prepare_worker_dispatch(root: Path, planned: Sequence[PlannedStage], with_patch: bool) -> "Dispatch | None":
    """The pools of the stages that will run; None if all run here."""
    if not any(stage.reason and stage.pool for stage in planned):
        return None
    from flows.workers import dispatch

    with convert_errors_to_wrong_use():
        return dispatch.prepare_dispatch(root, planned, with_patch)


def _list_unrecorded_code_remarks(root: Path) -> list[str]:
    from flows.lineage import git_files

    return git_files.list_unrecorded_code_warnings(root)


def _expect_durations(root: Path, planned: Sequence[PlannedStage], params: str) -> "dict[str, ExpectedDuration]":
    """How long each stage that may run will take with `params`, the text of params.yaml.

    Nothing where the records cannot be read, which the run itself says.
    """
    from flows.engine.plan import PlanError
    from flows.lineage.expected_durations import expect_stage_durations

    with suppress(PlanError):
        return expect_stage_durations(root, [stage.name for stage in planned if stage.reason], parse_params(params))
    return {}


def _load_state_before_judgements(root: Path, planned: Sequence[PlannedStage]) -> "Before | None":
    """What there is before new judgements of people are learned from, if the run may do that."""
    from flows.lineage import new_judgements

    return new_judgements.capture_state_before_run(root, planned)


def _print_new_judgements(
    root: Path, console: Console, before: "Before", planned: Sequence[PlannedStage], results: Sequence[StageResult]
) -> None:
    from flows.console import new_judgements as shown
    from flows.lineage import new_judgements

    with convert_errors_to_wrong_use():
        changed = new_judgements.summarize_judgement_effects(root, before, planned, results)
    if changed is not None:
        shown.print_judgement_changes(console, changed)


def _record_pipeline_summary(
    root: Path,
    console: Console,
    flow: str,
    params: str,
    planned: Sequence[PlannedStage],
    results: Sequence[StageResult],
    pages: Sequence[Path],
) -> None:
    """Write to MLflow what the run did. The results stand without it, so that a fault there is only said."""
    if not any(result.pipeline_run_id for result in results):
        return
    from flows.lineage import pipeline_summary

    try:
        with convert_errors_to_wrong_use():
            pipeline_summary.queue_or_record_pipeline_summary(root, flow, params, planned, results, pages)
    except WrongUseError as error:
        console.print(f"what MLflow has of this run is incomplete: {error}", markup=False)


def _end_killed_runs(root: Path, flow: str) -> None:
    """End the MLflow runs that a kill after the last stage left as running; no other run would."""
    from flows.engine import mlflow_run_lookup

    if not replay_process.start_recorder_if_journals_ended(root) and mlflow_run_lookup.has_unfinished_run(root):
        from flows.engine.mlflow_flow_recorder import end_killed_runs

        end_killed_runs(root, flow)


def _build_unchanged_results(root: Path, planned: Sequence[PlannedStage]) -> list[StageResult]:
    """The results where no stage ran: the records tell which run made each stage's output."""
    from flows.engine import dvc_lock, mlflow_client

    entries = dvc_lock.read_lock_entries(root)
    return [
        StageResult(
            stage.name,
            "up-to-date",
            mlflow_run_id=mlflow_client.find_or_adopt_maker_run(root, stage.name, entries[stage.name]),
            outs=dvc_lock.get_entry_hashes(entries[stage.name], "outs"),
        )
        for stage in planned
    ]


def _build_planned_result(stage: PlannedStage) -> StageResult:
    return StageResult(stage.name, "waiting" if stage.reason else "up-to-date", stage.reason or "")
