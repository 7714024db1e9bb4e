"""`posttrain`: run, status, lineage, explain, preset, ui. Thin: parse, call, print.

Exit codes: 0 all done, 1 a stage failed, 2 wrong use, 130 stopped by Ctrl-C. Every fault of use is one line
on standard error. Nothing heavy is imported until there is work to do.
"""

import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer
from rich.console import Console
from typer.exceptions import Abort, TyperException

from flows.console import completion as tab
from flows.console.display import watcher
from flows.console.summary import Screen, relative, show_plan, show_results
from flows.engine.state import PlannedStage, StageResult
from flows.params import approval
from flows.params.files import ParameterError, find_root, write
from flows.web import run_page

# Name of a flow -> the module with its TARGETS and its run(); its stages are the modules of tasks.<name>.
FLOWS = {"language": "flows.language_model", "offline": "flows.offline_rl"}
INTERRUPTED = 130  # what a shell reports after Ctrl-C, and what Typer returns for it
STARTED = time.monotonic()
RARELY = (100_000, 50, 50)  # garbage collection among the imports of Prefect and MLflow costs two seconds

app = typer.Typer(pretty_exceptions_enable=False)
Part = tuple[str, list[PlannedStage]]  # a flow, and the stages to bring up to date
Targets = Annotated[
    list[str] | None,
    typer.Argument(metavar="[language|offline|STAGE...]", help="Flows or stages.", autocompletion=tab.targets),
]


class WrongUseError(Exception):
    """The command cannot be carried out as given; the text is the line to show."""


def main() -> None:
    """The `posttrain` command."""
    os.environ.setdefault("DO_NOT_TRACK", "1")  # Prefect and MLflow send statistics otherwise
    gc.set_threshold(*RARELY)
    status = command(sys.argv[1:])
    gc.freeze()  # so that no last garbage collection runs at the exit
    sys.exit(status)


def command(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    try:
        status = app(list(arguments) or ["--help"], standalone_mode=False) or 0
        return _stopped() if status == INTERRUPTED else status
    except (WrongUseError, ParameterError) as error:
        return _wrong(str(error))
    except TyperException as error:
        return _wrong(f"{error.format_message()} (posttrain --help lists what there is)")
    except (Abort, KeyboardInterrupt):
        return _stopped()


def _stopped() -> int:
    print("posttrain: stopped; what had finished is kept, and the next run goes on", file=sys.stderr)
    return INTERRUPTED


def _wrong(message: str) -> int:
    print(f"posttrain: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"posttrain {version('posttrain')}")
        raise typer.Exit


@app.callback()
def _help(
    show: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Language-model post-training and offline reinforcement learning as one reproducible, auditable pipeline."""


@app.command()
def run(
    targets: Targets = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change params.yaml first.", autocompletion=tab.edits),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Cores to use at most.")] = None,
    force: Annotated[
        list[str] | None,
        typer.Option(metavar="STAGE", help="Run this stage even if it is up to date.", autocompletion=tab.stages),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run, and why.")] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="End with one JSON object; progress goes to standard error.")
    ] = False,
) -> int:
    """Run what is out of date, and nothing else."""
    root = find_root()
    console = Screen(sys.stderr if json_ else sys.stdout)
    results: dict[str, StageResult] = {}
    with _settings(root, set_ or [], keep=not dry_run) as changes:
        parts = _plan(root, targets, force or [])
        for change in changes:
            console.print(f"params.yaml{' would change' if dry_run else ''}: {change}", markup=False)
        for flow, planned in _told(console, parts):
            ended = _bring_up_to_date(root, console, flow, planned, jobs, dry_run, json_)
            results = {**{result.stage: result for result in ended}, **results}
    if json_:
        print(json.dumps({name: _facts(result) for name, result in results.items()}))
    return int(any(result.state in ("failed", "skipped") for result in results.values()))


@app.command()
def status(targets: Targets = None) -> int:
    """Show for each stage whether it is up to date, or why not, and the parameters that have no effect as set."""
    from flows.params import checking, editing

    console, root = Screen(), find_root()
    for _, planned in _told(console, _plan(root, targets, [])):
        show_plan(console, planned)
        sections = {stage.name.split("@")[0] for stage in planned}
        for line in editing.without_effect(root, checking.sections(root), sections):
            console.print(line, markup=False)
    return 0


@app.command()
def explain(key: Annotated[str, typer.Argument(help="SECTION or SECTION.KEY", autocompletion=tab.keys)]) -> None:
    """Show what a parameter means, its value, and which values it takes."""
    from flows.params import explaining

    print("\n".join(explaining.explain(find_root(), key)))


@app.command()
def preset(name: Annotated[str, typer.Argument(help="presets/NAME.yaml", autocompletion=tab.presets)]) -> int:
    """Lay presets/NAME.yaml, a part of params.yaml, over params.yaml."""
    from flows.params import checking, editing

    root = find_root()
    types = checking.sections(root)
    changes = editing.edit(root, types, editing.preset(root, types, name))
    for change in changes or [f"has the values of preset {name} already"]:
        print(f"params.yaml: {change}")
    return 0


@app.command()
def lineage(
    of: Annotated[
        str,
        typer.Argument(metavar="PATH|STAGE|HASH", help="An output, its stage or its hash.", autocompletion=tab.stages),
    ],
) -> int:
    """Show where an output comes from: the chain of runs back to raw data."""
    from flows.console.lineage_tree import tree
    from flows.engine.lineage import chain

    root = find_root()
    with _plan_errors():
        link = chain(root, of)
    Screen(soft_wrap=False).print(tree(link))
    return 0


@app.command()
def ui(
    port: Annotated[
        int | None, typer.Option(min=1, max=65534, help="Port of Prefect's page; MLflow's is the next one.")
    ] = None,
) -> int:
    """Start the Prefect and MLflow pages on loopback, and print their addresses."""
    from flows.web.servers import serve

    root, console = find_root(), Screen()
    try:
        with _plan_errors():
            return serve(root, console, port)
    except KeyboardInterrupt:
        console.print("stopped")
        return 0


def _module(flow: str) -> ModuleType:
    return importlib.import_module(FLOWS[flow])


@contextmanager
def _plan_errors() -> Iterator[None]:
    from flows.engine.plan import PlanError

    try:
        yield
    except PlanError as error:
        raise WrongUseError(str(error)) from None
    except OSError as error:  # the disk is full, broken or read-only
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise WrongUseError(f"{what}; what had finished is kept") from None


def _plan(root: Path, targets: Sequence[str] | None, force: Sequence[str]) -> list[Part]:
    """The plan of each named flow, then one plan of all named stages under the flow that they belong to."""
    from flows.engine.plan import plan

    if not approval.known(root):
        from flows.params import checking, editing

        editing.check(root, checking.sections(root))
        approval.remember(root)
    named = targets or ["language"]
    parts: list[Part] = []
    with _plan_errors():
        for flow in dict.fromkeys(name for name in named if name in FLOWS):
            parts.append((flow, plan(root, _module(flow).TARGETS, force)))
        stages = [name for name in named if name not in FLOWS]
        if stages:
            planned = plan(root, stages, force)
            belongs = (flow for flow in FLOWS if f" tasks.{flow}." in planned[-1].cmd)
            parts.append((next(belongs, "language"), planned))
    names = {stage.name for _, planned in parts for stage in planned}
    for name in force:
        if name not in names | {stage.split("@")[0] for stage in names}:
            raise WrongUseError(f"--force {name}: not among the stages that {', '.join(named)} needs")
    if out_of_date := {stage.name for _, planned in parts for stage in planned if stage.reason}:
        from flows.params import checking, editing

        editing.check_together(root, checking.sections(root), names, out_of_date)
    return parts


def _told(console: Console, parts: list[Part]) -> Iterator[Part]:
    """Yield the parts; where there are several, print the name of each one's flow first."""
    for flow, planned in parts:
        if len(parts) > 1:
            console.print(f"{flow}:")
        yield flow, planned


@contextmanager
def _settings(root: Path, settings: Sequence[str], keep: bool) -> Iterator[list[str]]:
    """Edit params.yaml; put it back at the end after wrong use, or if `keep` is False."""
    changes: list[str] = []
    if settings:
        from flows.params import checking, editing

        before = editing.read(root)
        changes = editing.edit(root, checking.sections(root), [editing.setting(text) for text in settings])
    try:
        yield changes
    except (WrongUseError, ParameterError):
        keep = False
        raise
    finally:
        if changes and not keep:
            write(root / "params.yaml", before)


def _bring_up_to_date(
    root: Path,
    console: Console,
    flow: str,
    planned: Sequence[PlannedStage],
    jobs: int | None,
    dry_run: bool,
    with_runs: bool,
) -> list[StageResult]:
    """Run or show what is out of date, and write the flow's pages. Returns no results where nobody needs them."""
    unchanged = all(stage.reason is None for stage in planned)
    shown = unchanged and not run_page.is_old(root, planned)
    results: list[StageResult] = []
    if unchanged:
        seconds = time.monotonic() - STARTED
        console.print(f"nothing has changed: {len(planned)} stages are up to date ({seconds:.1f} s)")
        with _plan_errors():
            if not dry_run:
                _settle(root, flow)
            results = _unchanged(root, planned) if with_runs or not shown else []
    elif dry_run:
        show_plan(console, planned)
        results = [_foreseen(stage) for stage in planned]
    else:
        display = watcher(console, planned, root)
        with display, _plan_errors():
            results = _module(flow).run(root, planned, jobs=jobs, watch=display)
        show_results(console, results, root, time.monotonic() - STARTED)
    if not dry_run and not shown:
        for page in run_page.write_pages(root, planned, results):
            console.print(f"report: {relative(page, root)}", markup=False)
    return results


def _settle(root: Path, flow: str) -> None:
    """End the MLflow runs that a kill after the last stage left as running; no other run would."""
    from flows.engine import mlflow_runs

    if mlflow_runs.left_running(root):
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


def _facts(result: StageResult) -> dict[str, object]:
    return {
        "state": result.state,
        "reason": result.reason,
        "seconds": round(result.seconds, 3),
        "mlflow_run_id": result.mlflow_run_id,
    }


if __name__ == "__main__":
    main()
