"""A run from its settings to its results: params.yaml is edited and checked, stages are planned, brought up to date,
and their results shown.

The command `posttrain` and the Python interface call the same functions. Nothing heavy is imported until there is work
to do.
"""

import importlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from flows import flow_run, no_change_check
from flows.console.outcome import iterate_outcome_lines
from flows.console.summary import format_waiting_stages
from flows.console.usage_errors import WrongUseError as WrongUseError
from flows.console.usage_errors import convert_errors_to_wrong_use as convert_errors_to_wrong_use
from flows.engine.journals import replay_process
from flows.engine.stage_types import PlannedStage, StageResult
from flows.flow_run import Begun
from flows.params import approval
from flows.params.files import PARAMS, read_text
from flows.params_overlay import Laid, overlay_params

if TYPE_CHECKING:
    from flows.engine.execute import Execution

# Name of a flow -> the module with the Prefect flow of this name, and the stages at which it ends; its stages are
# modules of tasks.<name>.
FLOWS = {
    "language": ("flows.language_model", ("report",)),
    "offline": ("flows.offline_rl", ("offline_report",)),
    "agents": ("flows.agents", ("agents_report",)),
}
MODULES = {**{flow: module for flow, (module, _) in FLOWS.items()}, "sweep": "flows.orchestration.sweep_flow"}
Part = tuple[str, list[PlannedStage]]  # a flow, and the stages to bring up to date


def run_targets(
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
    """Bring flows or stages up to date; the result of each stage by its name, none for a flow in which nothing has
    changed.

    `settings` change params.yaml first, as `--set` does. With `dry_run` nothing is changed or run. `with_runs` asks for
    every stage's result, with the run that made it. Stages of a work pool run on its workers, those with a GPU on
    `pool`'s unless dvc.yaml names another; `with_patch` sends workers that have a clone what is not committed. Where a
    stage needs more judgements of people than there are, what does not depend on it is done and the run ends, or with
    `wait` goes on when they have come. With `cold` each stage is a new process that imports what it needs itself. With
    `pull` outs that dvc.lock records and that are not here come from DVC's remote first. WrongUseError or
    ParameterError where it cannot be done as asked.
    """
    began = time.monotonic() if began is None else began
    how = flow_run.How(jobs, dry_run, with_runs, with_patch, wait, cold)
    flow_run.print_lines(
        console, () if console.quiet else replay_process.pop_recording_problems(root)
    )  # of the runs before
    results: dict[str, StageResult] = {}
    with (
        convert_errors_to_wrong_use(),
        overlay_params(root, settings, keep=not dry_run) as edit,
        flow_run.open_server_starter(root, not dry_run) as start,
    ):
        if edit.changes or force:
            start()
        parts = _plan_and_print_remarks(root, console, targets, force, pool, edit, dry_run, pull, start)
        parameters = {
            "targets": [*(targets or ["language"])],
            "set": dict(text.split("=", 1) for text in settings),
            "force": [*force],
            "where": pool,
        }
        changes = [change.replace(": ", " ", 1) for change in edit.changes if " -> " in change]
        for flow, planned in iterate_parts_printing_headings(console, parts):
            with flow_run.open_flow_run(root, console, flow, planned, how, edit, began) as part:
                if part.execution is not None:
                    run_flow_part(root, console, part, format_flow_run_title(flow, targets or (), changes), parameters)
            results = {**{result.stage: result for result in part.results}, **results}
            if part.lost:
                results["prefect"] = StageResult("prefect", "failed", part.lost)
    flow_run.print_lines(console, format_waiting_stages([*results.values()]))
    asked_for = [name for name in targets or () if name not in FLOWS]
    flow_run.print_lines(console, iterate_outcome_lines(root, asked_for, results))
    if not (settings or force or dry_run or with_runs or pool or with_patch):
        no_change_check.record_unchanged_flows(root, targets or (), parts)
    return results


def _plan_and_print_remarks(
    root: Path,
    console: Console,
    targets: Sequence[str] | None,
    force: Sequence[str],
    pool: str,
    edit: Laid,
    dry_run: bool = False,
    pull: bool = False,
    on_work: Callable[[], object] = lambda: None,
) -> list[Part]:
    """The plan with params.yaml as edited, where stages of work pools may have a server or not; what is to be known of
    it is printed.
    """
    parts = check_and_plan_targets(
        root, targets, force, pools=True, pool=pool, say=partial(console.print, markup=False), on_work=on_work
    )
    if pull and not dry_run and _pull_missing_outputs(root, console, parts):
        parts = check_and_plan_targets(root, targets, force, pools=True, pool=pool)
    if not _configure_server_for_pools(root, console, parts, pool):
        parts = check_and_plan_targets(root, targets, force)
    _check_edited_sections_of_other_stages(root, parts, edit.changes)
    flow_run.print_lines(
        console, (f"params.yaml{' would change' if dry_run else ''}: {change}" for change in edit.changes)
    )
    flow_run.print_lines(console, list_plan_remarks(root, parts))
    return parts


def _check_edited_sections_of_other_stages(root: Path, parts: Sequence[Part], changes: Sequence[str]) -> None:
    """Check the sections that were edited of stages that this run does not need, so that no later run stops at them."""
    names = {stage.name.partition("@")[0] for _, planned in parts for stage in planned}
    sections = {change.partition(".")[0] for change in changes if " -> " in change} - names
    if not sections:
        return
    from flows.engine import plan
    from flows.params import checking, editing

    text = read_text(root / PARAMS)
    types = checking.load_config_classes(root)
    for section in sorted(sections & types.keys()):
        try:
            needed = plan.list_needed_stages(root, [section], text)
        except plan.PlanError:
            continue  # no stage of this name, or one without branches
        editing.check_params_consistency(root, types, needed, {section}, text)


def run_flow_part(root: Path, console: Console, part: Begun, name: str, parameters: Mapping[str, Any]) -> None:
    """Run the Prefect flow of a part that has begun, as a run of this name."""
    from flows.orchestration import prefect_tasks, server

    flow = getattr(importlib.import_module(MODULES[part.flow]), part.flow)
    assert part.execution is not None
    with convert_errors_to_wrong_use(), prefect_tasks.stop_execution_on_signals(part.execution):
        try:
            with ExitStack() as stack:
                stack.enter_context(prefect_tasks.convert_errors_to_server_lost_error())
                if not server.is_within_flow_run():
                    stack.enter_context(
                        server.connect_flow_runs_to_server(part.server, root, partial(console.print, markup=False))
                    )
                prefect_tasks.run_prefect_flow(flow, part.execution, name, parameters)
        except prefect_tasks.ServerLostError as error:
            part.lost = str(error)
            console.print(part.lost, markup=False)


@contextmanager
def open_execution_for_flow_body(
    flow: str,
    targets: Sequence[str],
    settings: Mapping[str, Any],
    seeds: Sequence[int] | None,
    force: Sequence[str] | None,
    pool: str,
) -> Iterator["Execution | None"]:
    """What `run` does, around the body of a Prefect flow that was not called by it but deployed, scheduled or called by
    a user's own flow.

    Yields what executes the stages, or None where nothing has changed. What `run` would print goes to the log of the
    flow run.
    """
    from flows.engine.dvc_command import StageFailed
    from flows.orchestration.flow_log import FlowLog
    from flows.params.files import find_root

    root = find_root()
    console = FlowLog.console()
    began = time.monotonic()
    edits = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    if seeds:
        from flows import sweeping

        text = ",".join(map(str, seeds))
        options = sweeping.SweepOptions(pool=pool, began=began)
        results = sweeping.run_targets_with_seeds(root, console, targets, text, edits, options)
        if lost := [name for name, result in results.items() if result.state in ("failed", "skipped")]:
            raise WrongUseError(f"failed or skipped: {', '.join(lost)}")
        yield None
        return
    with convert_errors_to_wrong_use(), overlay_params(root, edits, keep=True) as edit:
        parts = _plan_and_print_remarks(root, console, targets, force or (), pool, edit)
        if len(parts) > 1:
            raise WrongUseError(f"flow {flow}: targets: {', '.join(targets)} belong to several flows")
        [(_, planned)] = parts
        part = None
        failed = None
        try:
            with flow_run.open_flow_run(root, console, flow, planned, flow_run.How(), edit, began) as part:
                try:
                    yield part.execution
                except StageFailed as error:  # the others have their results and pages all the same
                    failed = error
        except KeyboardInterrupt:
            if part is None or part.execution is None or not part.execution.cancelled:
                raise
        if failed is not None:
            raise failed


def list_plan_remarks(root: Path, parts: Sequence[Part]) -> list[str]:
    """Lines on stages of which more is to be known than whether they are up to date."""
    stages = [*{stage.name: stage for _, planned in parts for stage in planned}.values()]
    if not any(stage.frozen is not None or stage.elsewhere or stage.missing for stage in stages):
        return []
    from flows.console import plan_remarks
    from flows.workers import dvc_transfer

    remote = dvc_transfer.get_default_remote_name(root) if any(stage.missing for stage in stages) else ""
    return [*plan_remarks.format_plan_remarks(stages, remote)]


def _pull_missing_outputs(root: Path, console: Console, parts: Sequence[Part]) -> bool:
    """Bring what the stages lack from DVC's remote to the cache, from which they are restored; whether they lacked
    anything.
    """
    missing = {stage.name: None for _, planned in parts for stage in planned if stage.missing}
    if not missing:
        return False
    from flows.workers import dvc_transfer

    console.print(f"pulls the outs of {len(missing)} stages from DVC's remote", markup=False)
    try:
        dvc_transfer.fetch_stage_outputs(root, [*missing])
    except dvc_transfer.TransferError as error:
        raise WrongUseError(f"--pull: {error}") from None
    return True


def get_flow_targets(flow: str) -> tuple[str, ...]:
    """The stages at which a flow ends."""
    return FLOWS[flow][1]


def _configure_server_for_pools(root: Path, console: Console, parts: Sequence[Part], pool: str) -> bool:
    """Whether there is a Prefect server for the stages of work pools; WrongUseError without one if `pool` was asked
    for.
    """
    named = [stage for _, planned in parts for stage in planned if stage.reason and stage.pool]
    if not named:
        return True
    from flows.workers import prefect_servers

    with convert_errors_to_wrong_use():
        if prefect_servers.configure_prefect_environment(root) is not None:
            return True
        if pool:
            raise WrongUseError(f"--pool {pool}: {prefect_servers.NONE}")
    names = ", ".join(dict.fromkeys(stage.pool for stage in named))
    console.print(f"no Prefect server is configured, so the stages of pool {names} run on this machine", markup=False)
    return False


def check_and_plan_targets(
    root: Path,
    targets: Sequence[str] | None,
    force: Sequence[str],
    pools: bool = False,
    pool: str = "",
    say: Callable[[str], object] | None = None,
    on_work: Callable[[], object] = lambda: None,
) -> list[Part]:
    """The plan of each named flow, then one plan of all named stages under the flow that they belong to.

    `say` gets a line about each file of the user's that a stage would read. Where people have judged too little, the
    line says how much is missing. `on_work` is called as soon as some stage is out of date.
    """
    from flows.engine import plan as planning

    if not approval.is_params_approved(root):
        from flows.params import checking, editing

        editing.check_params(root, checking.load_config_classes(root))
        approval.record_params_approval(root)
    named = targets or ["language"]
    parts: list[Part] = []
    with convert_errors_to_wrong_use():
        for flow in dict.fromkeys(name for name in named if name in FLOWS):
            parts.append((flow, planning.plan_stages(root, FLOWS[flow][1], force, pools, pool, on_work)))
        stages = [name for name in named if name not in FLOWS]
        if stages:
            planned = planning.plan_stages(root, stages, force, pools, pool, on_work)
            parts.append((_select_flow_for_stages(planned), planned))
    names = {stage.name for _, planned in parts for stage in planned}
    for name in force:
        if name not in names | {stage.split("@")[0] for stage in names}:
            raise WrongUseError(f"--force {name}: not among the stages that {', '.join(named)} needs")
    if out_of_date := {stage.name for _, planned in parts for stage in planned if stage.reason}:
        from flows.params import checking, data_files, editing

        with convert_errors_to_wrong_use():
            editing.check_params_consistency(root, checking.load_config_classes(root), names, out_of_date)
            remarks = data_files.check_data_files(root, out_of_date)
        for line in remarks:
            if say is not None:
                say(line)
    return parts


def _select_flow_for_stages(planned: Sequence[PlannedStage]) -> str:
    """The flow that stages are recorded under: that of the last one, and of an extension's that of what it needs."""
    for stage in reversed(planned):
        for flow in FLOWS:
            if f" tasks.{flow}." in stage.cmd:
                return flow
    return "language"


def iterate_parts_printing_headings(console: Console, parts: list[Part]) -> Iterator[Part]:
    """Yield the parts; where there are several, print the name of each one's flow first."""
    for flow, planned in parts:
        if len(parts) > 1:
            console.print(f"{flow}:")
        yield flow, planned


def format_flow_run_title(flow: str, targets: Sequence[str], changes: Sequence[str]) -> str:
    """The name of a flow run, which is what it does: `run language to sft: dpo.beta 0.1 -> 0.2`."""
    ends = ", ".join(target for target in targets if target not in (flow, *FLOWS.get(flow, ("", ()))[1]))
    return f"run {flow}{' to ' if ends else ''}{ends}{': ' if changes else ''}{', '.join(changes)}"[:200]
