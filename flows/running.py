"""A run from its settings to its results: params.yaml is edited and checked, stages are planned, brought up to date, and their results shown.

The command `posttrain` and the Python interface call the same functions. Nothing heavy is imported until there is work to do.
"""

import importlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from rich.console import Console

from flows import device_memory, unchanged
from flows.console.display import watcher
from flows.console.summary import GOOD, headlines, relative, show_plan, show_results, waiting_for_people
from flows.engine.recording import settling
from flows.engine.state import PlannedStage, StageResult
from flows.laid import Laid, laid
from flows.params import approval
from flows.params.files import read_text
from flows.web import run_page
from tasks.common.mlflow_address import AddressError

if TYPE_CHECKING:
    from flows.lineage.new_judgements import Before
    from flows.workers.dispatch import Dispatch

# Name of a flow -> the module with its TARGETS and its run(); its stages are the modules of tasks.<name>.
FLOWS = {"language": "flows.language_model", "offline": "flows.offline_rl", "agents": "flows.agents"}
Part = tuple[str, list[PlannedStage]]  # a flow, and the stages to bring up to date


@dataclass(frozen=True)
class How:
    """The ways in which `run` may bring flows up to date, under its own names for them."""

    jobs: int | None
    dry_run: bool
    with_runs: bool
    with_patch: bool
    wait: bool
    cold: bool


class WrongUseError(Exception):
    """The command cannot be carried out as given; the text is the line to show."""


def run(
    root: Path,
    console: Console,
    targets: Sequence[str] | None = None,
    settings: Sequence[str] = (),
    *,
    jobs: int | None = None,
    force: Sequence[str] = (),
    dry_run: bool = False,
    with_runs: bool = False,
    began: float | None = None,
    pool: str = "",
    with_patch: bool = False,
    wait: bool = False,
    cold: bool = False,
    pull: bool = False,
) -> dict[str, StageResult]:
    """Bring flows or stages up to date; the result of each stage by its name, none for a flow in which nothing has changed.

    `settings` change params.yaml first, as `--set` does. With `dry_run` nothing is changed or run. `with_runs` asks for every
    stage's result, with the run that made it. Stages of a work pool run on its workers, those with a GPU on `pool`'s unless
    dvc.yaml names another; `with_patch` sends workers that have a clone what is not committed. Where a stage needs more judgements of people than there
    are, what does not depend on it is done and the run ends, or with `wait` goes on when they have come. With `cold` each stage
    is a new process that imports what it needs itself. With `pull` outs that dvc.lock records and that are not here come from DVC's
    remote first. WrongUseError or ParameterError where it cannot be done as asked.
    """
    began = time.monotonic() if began is None else began
    how = How(jobs, dry_run, with_runs, with_patch, wait, cold)
    _tell(console, () if console.quiet else settling.missing(root))  # of the runs before
    results: dict[str, StageResult] = {}
    with one_line(), laid(root, settings, keep=not dry_run) as edit:
        parts = plan(root, targets, force, pools=True, pool=pool, say=partial(console.print, markup=False))
        if pull and not dry_run and _pull(root, console, parts):
            parts = plan(root, targets, force, pools=True, pool=pool)
        if not _has_server(root, console, parts, pool):
            parts = plan(root, targets, force)
        _tell(console, (f"params.yaml{' would change' if dry_run else ''}: {change}" for change in edit.changes))
        _tell(console, remarks(root, parts))
        for flow, planned in with_headings(console, parts):
            ended = _bring_up_to_date(root, console, flow, planned, how, edit, began)
            results = {**{result.stage: result for result in ended}, **results}
    _tell(console, waiting_for_people([*results.values()]))
    if not (settings or force or dry_run or with_runs or pool or with_patch):
        unchanged.note(root, targets or (), parts)
    return results


def remarks(root: Path, parts: Sequence[Part]) -> list[str]:
    """Lines on stages of which more is to be known than whether they are up to date."""
    stages = [*{stage.name: stage for _, planned in parts for stage in planned}.values()]
    if not any(stage.frozen is not None or stage.elsewhere or stage.missing for stage in stages):
        return []
    from flows.console import plan_remarks
    from flows.workers import dvc_transfer

    remote = dvc_transfer.default_remote(root) if any(stage.missing for stage in stages) else ""
    return [*plan_remarks.lines(stages, remote)]


def _pull(root: Path, console: Console, parts: Sequence[Part]) -> bool:
    """Bring what the stages lack from DVC's remote to the cache, from which they are restored; whether they lacked anything."""
    missing = {stage.name: None for _, planned in parts for stage in planned if stage.missing}
    if not missing:
        return False
    from flows.workers import dvc_transfer

    console.print(f"pulls the outs of {len(missing)} stages from DVC's remote", markup=False)
    try:
        dvc_transfer.pull(root, [*missing])
    except dvc_transfer.TransferError as error:
        raise WrongUseError(f"--pull: {error}") from None
    return True


def _tell(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(line, markup=False)


def targets(flow: str) -> tuple[str, ...]:
    """The stages at which a flow ends."""
    found: tuple[str, ...] = _module(flow).TARGETS
    return found


def _module(flow: str) -> ModuleType:
    return importlib.import_module(FLOWS[flow])


@contextmanager
def one_line() -> Iterator[None]:
    """Turn what the engine or the disk raises into a WrongUseError."""
    from flows.engine.plan import PlanError

    try:
        yield
    except (PlanError, AddressError) as error:
        raise WrongUseError(str(error)) from None
    except OSError as error:  # the disk is full, broken or read-only
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise WrongUseError(f"{what}; what had finished is kept") from None


def _has_server(root: Path, console: Console, parts: Sequence[Part], pool: str) -> bool:
    """Whether there is a Prefect server for the stages of work pools; WrongUseError without one if `pool` was asked for."""
    named = [stage for _, planned in parts for stage in planned if stage.reason and stage.pool]
    if not named:
        return True
    from flows.workers import prefect_servers

    with one_line():
        if prefect_servers.configure(root) is not None:
            return True
        if pool:
            raise WrongUseError(f"--pool {pool}: {prefect_servers.NONE}")
    names = ", ".join(dict.fromkeys(stage.pool for stage in named))
    console.print(f"no Prefect server is configured, so the stages of pool {names} run on this machine", markup=False)
    return False


def _workers(root: Path, planned: Sequence[PlannedStage], with_patch: bool) -> "Dispatch | None":
    """The pools of the stages that will run; None if all run here."""
    if not any(stage.reason and stage.pool for stage in planned):
        return None
    from flows.workers import dispatch

    with one_line():
        return dispatch.prepare(root, planned, with_patch)


def plan(
    root: Path,
    targets: Sequence[str] | None,
    force: Sequence[str],
    pools: bool = False,
    pool: str = "",
    say: Callable[[str], object] | None = None,
) -> list[Part]:
    """The plan of each named flow, then one plan of all named stages under the flow that they belong to.

    `say` gets a line about each file of the user's that a stage would read. Where people have judged too little, the line says how much is missing.
    """
    from flows.engine import plan as planning

    if not approval.known(root):
        from flows.params import checking, editing

        editing.check(root, checking.sections(root))
        approval.remember(root)
    named = targets or ["language"]
    parts: list[Part] = []
    with one_line():
        for flow in dict.fromkeys(name for name in named if name in FLOWS):
            parts.append((flow, planning.plan(root, _module(flow).TARGETS, force, pools, pool)))
        stages = [name for name in named if name not in FLOWS]
        if stages:
            planned = planning.plan(root, stages, force, pools, pool)
            belongs = (flow for flow in FLOWS if f" tasks.{flow}." in planned[-1].cmd)
            parts.append((next(belongs, "language"), planned))
    names = {stage.name for _, planned in parts for stage in planned}
    for name in force:
        if name not in names | {stage.split("@")[0] for stage in names}:
            raise WrongUseError(f"--force {name}: not among the stages that {', '.join(named)} needs")
    if out_of_date := {stage.name for _, planned in parts for stage in planned if stage.reason}:
        from flows.params import checking, data_files, editing

        with one_line():
            editing.check_together(root, checking.sections(root), names, out_of_date)
            remarks = data_files.check(root, out_of_date)
        for line in remarks:
            if say is not None:
                say(line)
    return parts


def with_headings(console: Console, parts: list[Part]) -> Iterator[Part]:
    """Yield the parts; where there are several, print the name of each one's flow first."""
    for flow, planned in parts:
        if len(parts) > 1:
            console.print(f"{flow}:")
        yield flow, planned


def _bring_up_to_date(
    root: Path,
    console: Console,
    flow: str,
    planned: Sequence[PlannedStage],
    how: How,
    edit: Laid,
    began: float,
) -> list[StageResult]:
    """Run or show what is out of date, and write the flow's pages. Returns no results where nobody needs them."""
    unchanged = all(stage.reason is None for stage in planned)
    shown = unchanged and not run_page.is_old(root, planned)
    results: list[StageResult] = []
    if unchanged:
        seconds = time.monotonic() - began
        console.print(f"nothing has changed: {len(planned)} stages are up to date ({seconds:.1f} s)")
        with one_line():
            if not how.dry_run:
                _settle(root, flow)
            results = _unchanged(root, planned) if how.with_runs or not shown else []
    elif how.dry_run:
        show_plan(console, planned)
        results = [_foreseen(stage) for stage in planned]
    else:
        params = read_text(root / "params.yaml")  # as the run begins
        _tell(console, (*device_memory.remarks(root, planned), *_unrecorded(root)))
        known = _before(root, planned)
        display = watcher(console, planned, root, _durations(root, planned), how.jobs)
        workers = _workers(root, planned, how.with_patch)
        with ExitStack() as stack:
            if workers is not None:
                stack.callback(workers.close)
            stack.enter_context(display)
            stack.enter_context(one_line())
            ways = {"jobs": how.jobs, "wait": how.wait, "cold": how.cold, "settled": how.with_runs}
            results = _module(flow).run(root, planned, watch=edit.watching(display), workers=workers, **ways)
        show_results(console, results, root, time.monotonic() - began)
        if known is not None:
            _show_new_judgements(root, console, known, planned, results)
    if not how.dry_run and not shown:
        pages = run_page.write_pages(root, planned, results)
        _tell(console, () if console.quiet else settling.missing(root))
        _tell(console, (f"{page.stem.rpartition('_')[2]}: {relative(page, root)}" for page in pages))
        if not unchanged:
            _record(root, console, flow, params, planned, results, pages)
    if unchanged or not how.dry_run:
        good = {result.stage for result in results if result.state in GOOD}
        _tell(console, headlines(root, {stage.name for stage in planned} if unchanged else good))
    return results


def _unrecorded(root: Path) -> list[str]:
    from flows.lineage import git_files

    return git_files.remarks(root)


def _durations(root: Path, planned: Sequence[PlannedStage]) -> dict[str, float]:
    """The seconds that each stage that may run took the last time; none where the records cannot be read, which the run itself says."""
    from flows.engine.plan import PlanError
    from flows.lineage import durations

    with suppress(PlanError):
        return durations.of_stages(root, [stage.name for stage in planned if stage.reason])
    return {}


def _before(root: Path, planned: Sequence[PlannedStage]) -> "Before | None":
    """What there is before new judgements of people are learned from, if the run may do that."""
    from flows.lineage import new_judgements

    return new_judgements.before(root, planned)


def _show_new_judgements(
    root: Path, console: Console, known: "Before", planned: Sequence[PlannedStage], results: Sequence[StageResult]
) -> None:
    from flows.console import new_judgements as shown
    from flows.lineage import new_judgements

    with one_line():
        changed = new_judgements.changed(root, known, planned, results)
    if changed is not None:
        shown.show(console, changed)


def _record(
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
    from flows.lineage import pipeline_record

    try:
        with one_line():
            pipeline_record.hand_over(root, flow, params, planned, results, pages)
    except WrongUseError as error:
        console.print(f"what MLflow has of this run is incomplete: {error}", markup=False)


def _settle(root: Path, flow: str) -> None:
    """End the MLflow runs that a kill after the last stage left as running; no other run would."""
    from flows.engine import mlflow_runs

    if not settling.go_on(root) and mlflow_runs.left_running(root):
        from flows.engine.mlflow_recording import settle

        settle(root, flow)


def _unchanged(root: Path, planned: Sequence[PlannedStage]) -> list[StageResult]:
    """The results where no stage ran: the records tell which run made each stage's output."""
    from flows.engine import dvc_lock, mlflow_store

    entries = dvc_lock.read_entries(root)
    return [
        StageResult(
            stage.name,
            "up-to-date",
            mlflow_run_id=mlflow_store.find(root, stage.name, entries[stage.name]),
            outs=dvc_lock.hashes(entries[stage.name], "outs"),
        )
        for stage in planned
    ]


def _foreseen(stage: PlannedStage) -> StageResult:
    return StageResult(stage.name, "waiting" if stage.reason else "up-to-date", stage.reason or "")
