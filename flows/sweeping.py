"""A sweep from its points to its results: one graph is checked and run, what came out is shown and recorded. `run
--seeds` is one over seeds.

The commands and the Python interface call these functions, as they call those of running.py. Nothing heavy is imported
until there is work.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from flows import flow_run, running
from flows.console.summary import format_relative_path
from flows.engine.stage_types import PlannedStage, StageResult, Watcher
from flows.params import editing
from flows.params.files import PARAMS, SEED, parse_params, read_text
from flows.params_overlay import Laid, overlay_params
from flows.running import FLOWS, WrongUseError, convert_errors_to_wrong_use
from flows.sweeps import axes

if TYPE_CHECKING:
    from flows.engine.execute import Execution
    from flows.sweeps.outcome import HeadlineValue, SettingRow
    from flows.sweeps.sweep import Ended, Sweep, Watching

COLUMNS = 4  # of the table of a sweep, unless one metric is asked for


@dataclass(frozen=True)
class SweepOptions:
    """How a sweep is to run, and what it is to show."""

    jobs: int | None = None
    dry_run: bool = False
    cold: bool = False
    metric: str = ""
    early: str = ""  # the number by which trainings that are behind are stopped
    evaluations: bool = False  # stop at those that differ between points
    pool: str = ""  # whose workers run stages with a GPU, and
    with_patch: bool = False  # get what is not committed, too
    began: float = 0.0


@dataclass(frozen=True)
class SweepOutcome:
    """How a sweep ended: whether every point is there, and what is known of each."""

    good: bool
    points: Sequence[Mapping[str, Any]]
    sentence: str | None = None  # of the report over seeds


@dataclass(frozen=True)
class _Found:
    """What came out at the points of a sweep."""

    ended: Sequence["Ended"]
    values: Mapping[int, Mapping[str, "HeadlineValue"]]  # number of a point -> its metrics
    names: Sequence[str]  # of the metrics that are shown
    rows: Sequence["SettingRow"]


def run_targets_with_seeds(
    root: Path, console: Console, targets: Sequence[str], seeds: str, settings: Sequence[str], options: SweepOptions
) -> dict[str, StageResult]:
    """The targets with each seed, then the workspace's own, if it is one of them, and the report over seeds.

    The results are those of the workspace's stages, and one of the name `seeds` if a seed did not get to its end.
    """
    seed_axis = axes.parse_seeds_axis(seeds)
    if seed_axis is None:
        raise WrongUseError("--seeds: expected whole numbers from 0 on, such as 0,1,2")
    with overlay_params(root, settings, keep=not options.dry_run) as edit:
        for change in edit.changes:
            console.print(f"params.yaml{' would change' if options.dry_run else ''}: {change}", markup=False)
        outcome = run_sweep_points(
            root, console, axes.build_grid_points([], seed_axis), targets or ["language"], options, edit
        )
    if options.dry_run:
        return {}
    workspace_seed = editing.get_param_value(root, SEED)
    results = dict[str, StageResult]()
    if workspace_seed in seed_axis.values:
        console.print(f"the workspace has seed {workspace_seed}:", markup=False)
        results = running.run_targets(root, console, targets, jobs=options.jobs, cold=options.cold)
    if outcome.sentence:
        console.print(outcome.sentence, markup=False)
    failed = {} if outcome.good else {"seeds": StageResult("seeds", "failed", "some seeds did not get to their end")}
    return results | failed


def run_sweep_points(
    root: Path,
    console: Console,
    points: Sequence[axes.Point],
    targets: Sequence[str],
    options: SweepOptions,
    edit: Laid | None = None,
) -> SweepOutcome:
    """Run all that the targets need at each of the points, show what came out, and record it; `edit` notes when
    something has begun.

    WrongUseError or ParameterError of one line, before anything runs, where the points or targets are wrong.
    """
    from flows.console import sweep_table
    from flows.sweeps import sweep as sweeping

    flow, stages = _resolve_flow_and_stages(targets)
    pools = _configure_sweep_pool_server(root, console, options.pool)
    with (
        convert_errors_to_wrong_use(),
        ExitStack() as stack,
        sweeping.prepare_sweep(root, points, stages, options.evaluations, pools, options.pool, options.early) as sweep,
    ):
        if len(points) > 1 and len(sweep.planned) == len(sweep.of_points[points[0].number]):
            varied = ", ".join(dict(points[-1].settings))
            raise WrongUseError(f"{varied}: no stage that {', '.join(targets)} needs depends on it")
        if options.dry_run:
            sweep_table.print_sweep_plan(console, sweep)
            sweep_table.print_sweep_stages(console, sweep)
            return SweepOutcome(True, [])
        recorded = _find_recorded_runs(sweep, options.early)
        if recorded is None:
            sweep_table.print_sweep_plan(console, sweep)
            if any(stage.reason and stage.pool for stage in sweep.planned):
                from flows.workers import dispatch

                sweep.owner.workers = workers = dispatch.prepare_dispatch(
                    root, sweep.planned, options.with_patch, copies=True
                )
                stack.callback(workers.close if workers else lambda: None)
            server = stack.enter_context(flow_run.open_prefect_server(root, console))

            def call(execution: "Execution") -> None:
                part = flow_run.Begun("sweep", execution, server)
                running.run_flow_part(root, console, part, sweep.title, {"points": sweep.title})

            watching = _make_watcher_factory(console, sweep, options.jobs, edit or Laid())
            results = sweeping.run_sweep(sweep, flow, options.jobs, watching, options.cold, call)
        else:
            results = [sweep.owner.describe(stage.name) for stage in sweep.planned]
        outcome = _collect_outcomes(sweep, results, options)
        sentence, pages = _print_and_write_results(console, sweep, results, outcome, options)
        runs = (
            _record_sweep(console, sweep, flow, results, outcome, pages, options.early)
            if recorded is None
            else recorded
        )
        return SweepOutcome(
            all(ended_point.over for ended_point in outcome.ended), _build_point_summaries(outcome, runs), sentence
        )


def find_varied_flows(root: Path, varied: Sequence[axes.Axis]) -> list[str]:
    """The flows whose stages have the sections that are varied; the language flow where only seeds are."""
    sections = [axis.key.split(".")[0] for axis in varied]
    flow_names = [flow for name in sections for flow in FLOWS if _has_flow_stage(root, flow, name)]
    return list(dict.fromkeys(flow_names)) or ["language"]


def _has_flow_stage(root: Path, flow: str, stage: str) -> bool:
    """Whether the flow has the stage, or records that stage of an extension (tasks.stage.main)."""
    if (root / f"tasks/{flow}/configs/{stage}.py").is_file():
        return True
    modules = root.glob(f"tasks/extensions/*/{stage}.py")
    return any(f'main(run, flow="{flow}")' in module.read_text() for module in modules)


def _resolve_flow_and_stages(targets: Sequence[str]) -> tuple[str, list[str]]:
    """The flow to record under, and the stages to bring about."""
    flow = next((name for name in targets if name in FLOWS), "language")
    return flow, [stage for name in targets for stage in (running.get_flow_targets(name) if name in FLOWS else (name,))]


def _configure_sweep_pool_server(root: Path, console: Console, pool: str) -> bool:
    """Whether there is a Prefect server for stages of work pools; WrongUseError without one if `pool` was asked for."""
    if not pool and "pool:" not in (root / "dvc.yaml").read_text():
        return False
    from flows.workers import prefect_servers

    with convert_errors_to_wrong_use():
        configured = prefect_servers.configure_prefect_environment(root) is not None
    if pool and not configured:
        raise WrongUseError(f"--pool {pool}: {prefect_servers.NONE}")
    if not configured:
        console.print("no Prefect server is configured, so stages of pools run on this machine")
    return configured


def _make_watcher_factory(console: Console, sweep: "Sweep", jobs: int | None, edit: Laid) -> "Watching":
    @contextmanager
    def watching(planned: Sequence[PlannedStage]) -> Iterator[Watcher]:
        from flows.console.display import create_progress_display
        from flows.lineage.expected_durations import expect_stage_durations

        late = {stage.name: sweep.owner.part(stage.name) for stage in planned if stage.reason}
        params = parse_params(read_text(sweep.root / PARAMS))
        by_stage = expect_stage_durations(sweep.root, {node.draft.stage for node, _ in late.values()}, params)
        expected = {
            name: by_stage[node.draft.stage]._replace(seconds=by_stage[node.draft.stage].seconds * share)
            for name, (node, share) in late.items()
            if node.draft.stage in by_stage
        }
        with create_progress_display(console, planned, sweep.root, expected, jobs) as display:
            yield edit.wrap_watcher(display)

    return watching


def _collect_outcomes(sweep: "Sweep", results: Sequence[StageResult], options: SweepOptions) -> _Found:
    from flows.sweeps import outcome

    ended = sweep.ended({result.stage: result for result in results})
    values = {
        ended_point.point.number: outcome.load_point_metrics(sweep.root, ended_point, options.metric)
        for ended_point in ended
    }
    all_names = outcome.select_shown_metrics(values, options.metric)
    names = all_names[:COLUMNS] if options.evaluations and not options.metric else all_names
    return _Found(ended, values, names, outcome.build_setting_rows(ended, values, names))


def _print_and_write_results(
    console: Console, sweep: "Sweep", results: Sequence[StageResult], outcome: _Found, options: SweepOptions
) -> tuple[str | None, list[Path]]:
    """Print the table, write the page; the sentence of the report over seeds, where there is one, and the page."""
    from flows.console import sweep_table
    from flows.lineage import durations
    from flows.sweeps import over_seeds
    from flows.web import sweep_page

    if options.metric and not outcome.names:
        available = ", ".join(dict.fromkeys(name for values in outcome.values.values() for name in values))
        console.print(f"--metric {options.metric}: no point has it; there are {available or 'none'}", markup=False)
    sweep_table.print_failed_stages(console, sweep, results)
    made = durations.read_run_durations(
        sweep.root, {run for ended_point in outcome.ended for run in ended_point.runs.values() if run}
    )
    cost = sweep_table.compute_sweep_cost(sweep, {result.stage: result for result in results}, made)
    ended = [result for result in results if result.stage in sweep.nodes]
    sweep_table.print_sweep_results(console, outcome.rows, outcome.names, ended, time.monotonic() - options.began, cost)
    sentence = None
    if not any(row.settings for row in outcome.rows):  # seeds, and nothing else
        try:
            with convert_errors_to_wrong_use():
                sentence = over_seeds.write_sweep_seeds_report(sweep.root, outcome.ended, sweep.root)
        except WrongUseError as error:
            console.print(str(error), markup=False)
    page = sweep.root / over_seeds.PAGES[0]
    if sentence is None:
        page = sweep_page.write_sweep_page(sweep.root, sweep.title, outcome.rows, outcome.names, cost)
    console.print(f"{page.stem}: {format_relative_path(page, sweep.root)}", markup=False)
    return sentence, [page]


def _build_point_summaries(outcome: _Found, runs: Mapping[int, str]) -> list[dict[str, Any]]:
    return [
        {
            "number": ended_point.point.number,
            "settings": dict(ended_point.point.settings),
            "run": runs.get(ended_point.point.number),
            "states": dict(ended_point.states),
            "behind": ended_point.behind,
            "metrics": {name: vars(value) for name, value in outcome.values[ended_point.point.number].items()},
        }
        for ended_point in outcome.ended
    ]


def _find_recorded_runs(sweep: "Sweep", early: str) -> dict[int, str] | None:
    """The runs of the points by their numbers, if the newest sweep is this one and all of it is there; else None."""
    from flows.sweeps import sweep_runs

    if any(stage.reason for stage in sweep.planned):
        return None
    return sweep_runs.find_same_sweep_runs(
        sweep.root, [point.name for point in sweep.points], list(sweep.texts.values()), early
    )


def _record_sweep(
    console: Console,
    sweep: "Sweep",
    flow: str,
    results: Sequence[StageResult],
    outcome: _Found,
    pages: Sequence[Path],
    early: str,
) -> dict[int, str]:
    """Write the points to MLflow; the results stand without it, so that a fault there is only said."""
    from flows.sweeps import sweep_runs
    from flows.web import sweep_page

    parent = next((result.pipeline_run_id for result in results if result.pipeline_run_id), None)
    if parent is None:
        return {}
    summary = sweep_runs.SweepSummary(sweep.title, sweep_page.render_sweep_markdown(outcome.rows, outcome.names), pages)
    try:
        with convert_errors_to_wrong_use():
            runs = sweep_runs.record_point_runs(
                sweep.root, flow, parent, sweep.source, outcome.ended, outcome.values, early
            )
            sweep_runs.record_sweep_summary(sweep.root, parent, summary)
            return runs
    except WrongUseError as error:
        console.print(f"what MLflow has of this sweep is incomplete: {error}", markup=False)
        return {}
