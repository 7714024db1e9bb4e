"""`posttrain`: run, status, lineage, audit, compare, verify, clean, chat, export, ui and more. Thin: parse,
call, print.

Exit codes: 0 all done, 1 a stage failed, 2 wrong use, 130 stopped by Ctrl-C. Every fault of use is one line
on standard error. Nothing heavy is imported until there is work to do.
"""

import gc
import json
import sys
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import Abort, TyperException

from flows import (
    accept_command,
    audit_commands,
    check_command,
    clean_command,
    model_commands,
    running,
    scaling_commands,
    serve_command,
    start,
    sweep_commands,
    worker_commands,
)
from flows.check_command import Targets
from flows.console import completion as tab
from flows.console.summary import PlainConsole, print_stage_plan
from flows.engine.stage_types import StageResult
from flows.params.files import PARAMS, ParameterError, find_root
from flows.recipes import preset_command, use_command
from flows.running import WrongUseError
from tasks.common import run_environment
from tasks.common.terminal import escape_control_characters, message
from tasks.extension_modules import import_extension_modules

INTERRUPTED = 130  # what a shell reports after Ctrl-C, and what Typer returns for it
STARTED = time.monotonic()
RARELY = (100_000, 50, 50)  # garbage collection among the imports of Prefect and MLflow costs two seconds

app = typer.Typer(pretty_exceptions_enable=False)


def main() -> None:
    """The `posttrain` command."""
    start.ensure_utf8_or_restart()
    run_environment.prepare_environment()
    gc.set_threshold(*RARELY)
    status = run_command_line(sys.argv[1:])
    gc.freeze()  # so that no last garbage collection runs at the exit
    sys.exit(status)


def run_command_line(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code."""
    try:
        status = app(list(arguments) or ["--help"], standalone_mode=False) or 0
        return _print_interrupt_message() if status == INTERRUPTED else status
    except (WrongUseError, ParameterError) as error:
        return _print_wrong_use_message(str(error))
    except TyperException as error:
        return _print_wrong_use_message(f"{error.format_message()} (posttrain --help lists what there is)")
    except (Abort, KeyboardInterrupt):
        return _print_interrupt_message()


def _print_interrupt_message() -> int:
    print("posttrain: stopped; what had finished is kept, and the next run goes on", file=sys.stderr)
    return INTERRUPTED


def _print_wrong_use_message(text: str) -> int:
    print(f"posttrain: {message(' '.join(text.split()))}", file=sys.stderr)
    return 2


def _print_version_and_exit(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        print(f"posttrain {version('posttrain')}")
        raise typer.Exit


@app.callback()
def _help(
    show: Annotated[
        bool, typer.Option("--version", callback=_print_version_and_exit, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Language-model post-training and offline reinforcement learning as one reproducible, auditable pipeline."""


def run(
    targets: Targets = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.KEY=VALUE",
            help="Change params.yaml first.",
            autocompletion=tab.complete_param_edits,
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Cores to use at most.")] = None,
    force: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STAGE", help="Run this stage even if it is up to date.", autocompletion=tab.complete_stages
        ),
    ] = None,
    pool: Annotated[
        str,
        typer.Option(
            metavar="POOL", envvar="POSTTRAIN_POOL", help="Run stages that ask for a GPU on the workers of this pool."
        ),
    ] = "",
    with_patch: Annotated[
        bool, typer.Option("--with-patch", help="Send workers that have a clone of their own what is not committed.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would run, and why.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until people have judged enough, and go on by itself.")
    ] = False,
    cold: Annotated[
        bool, typer.Option("--cold", help="Start each stage as a new process that imports everything itself.")
    ] = False,
    pull: Annotated[
        bool, typer.Option("--pull", help="First bring results that dvc.lock records from DVC's remote.")
    ] = False,
    seeds: Annotated[
        str, typer.Option(metavar="0,1,2", help="Run with each of these seeds; what does not depend on it runs once.")
    ] = "",
    json_: Annotated[
        bool, typer.Option("--json", help="End with one JSON object; progress goes to standard error.")
    ] = False,
) -> int:
    """Run what is out of date, and nothing else."""
    console = PlainConsole(sys.stderr if json_ else sys.stdout)
    if seeds and (force or wait or pull):
        raise WrongUseError("--seeds: cannot be used together with --force, --wait or --pull")
    if seeds:
        from flows import sweeping

        options = sweeping.SweepOptions(jobs, dry_run, cold, pool=pool, with_patch=with_patch, began=STARTED)
        results = sweeping.run_targets_with_seeds(find_root(), console, targets or [], seeds, set_ or [], options)
        return int(any(result.state in ("failed", "skipped") for result in results.values()))
    results = running.run_targets(
        find_root(),
        console,
        targets,
        set_ or [],
        jobs=jobs,
        force=force or [],
        dry_run=dry_run,
        with_runs=json_,
        began=STARTED,
        pool=pool,
        with_patch=with_patch,
        wait=wait,
        cold=cold,
        pull=pull,
    )
    if json_:
        print(json.dumps({name: _convert_result_to_dict(result) for name, result in results.items()}))
    return int(any(result.state in ("failed", "skipped") for result in results.values()))


def status(
    targets: Targets = None,
    why: Annotated[
        str,
        typer.Option(
            metavar="STAGE",
            help="Show what made this stage out of date, line by line.",
            autocompletion=tab.complete_stages,
        ),
    ] = "",
) -> int:
    """Show for each stage whether it is up to date, or why not, and the parameters without effect that you have set."""
    from flows.console import plan_remarks
    from flows.lineage import libraries
    from flows.lineage.git_files import read_file_at_head
    from flows.params import checking, editing

    console = PlainConsole()
    root = find_root()
    if why:
        return _print_staleness_causes(console, root, why)
    read: list[str] = []
    parts = running.check_and_plan_targets(root, targets, [], say=read.append)
    committed = read_file_at_head(root, PARAMS)
    for _, planned in running.iterate_parts_printing_headings(console, parts):
        print_stage_plan(console, planned)
        sections = {stage.name.split("@")[0] for stage in planned}
        for line in editing.list_idle_param_warnings(root, checking.load_config_classes(root), sections, committed):
            console.print(line, markup=False)
    current = dict.fromkeys(stage.name for _, planned in parts for stage in planned if not stage.reason)
    versions = plan_remarks.format_library_changes(libraries.find_library_version_changes(root, current))
    for line in (*running.list_plan_remarks(root, parts), *versions, *read):
        console.print(line, markup=False)
    return 0


def _print_staleness_causes(console: PlainConsole, root: Path, stage: str) -> int:
    """Print what changed in a stage and above it; a matrix stage stands for all its branches."""
    from flows.console.staleness_causes import print_staleness_causes

    [(_, planned)] = running.check_and_plan_targets(root, [stage], [])
    late = [planned_stage for planned_stage in planned if planned_stage.reason]
    if not late:
        console.print(f"{stage} is up to date", markup=False)
    with running.convert_errors_to_wrong_use():
        print_staleness_causes(console, root, late)
    return 0


def explain(
    key: Annotated[str, typer.Argument(help="SECTION or SECTION.KEY", autocompletion=tab.complete_param_keys)],
) -> None:
    """Show what a parameter means, its value, and which values it takes."""
    from flows.params import explaining

    print(escape_control_characters("\n".join(explaining.explain_param(find_root(), key))))


def ui(
    port: Annotated[int | None, typer.Option(min=1, max=65534, help="Port of MLflow's page.")] = None,
    stop: Annotated[bool, typer.Option("--stop", help="End the repository's Prefect server.")] = False,
    env: Annotated[
        bool, typer.Option("--env", help="Print the exports with which plain `prefect` speaks to that server.")
    ] = False,
) -> int:
    """Start the Prefect and MLflow pages on loopback, and print their addresses."""
    from flows.web import servers

    root = find_root()
    console = PlainConsole()
    try:
        with running.convert_errors_to_wrong_use():
            if stop:
                return servers.stop_prefect_server(root, console)
            return (
                servers.start_server_and_print_environment(root)
                if env
                else servers.run_web_servers(root, console, port)
            )
    except KeyboardInterrupt:
        console.print("stopped")
        return 0


COMMANDS: tuple[Callable[..., Any], ...] = (
    run,
    status,
    check_command.check,
    preset_command.preset,
    use_command.use,
    explain,
    serve_command.serve,
    ui,
    audit_commands.runs,
    audit_commands.compare,
    model_commands.chat,
    model_commands.evaluate,
    model_commands.export,
    audit_commands.lineage,
    audit_commands.audit,
    audit_commands.verify,
    accept_command.accept,
    sweep_commands.sweep,
    sweep_commands.apply,
    worker_commands.worker,
    worker_commands.workers,
    scaling_commands.plan_memory,
    clean_command.clean,
    # an extension's command replaces one of the same name above
    *chain.from_iterable(module.COMMANDS for module in import_extension_modules("command")),
)
PANELS = {  # heading of `posttrain --help`: the commands below it
    "Run": ("run", "status", "check", "preset", "use", "explain", "serve"),
    "Look at results": ("ui", "runs", "compare", "chat", "evaluate", "export"),
    "Where a number comes from": ("lineage", "audit", "verify", "accept"),
    "Many runs": ("sweep", "apply"),
    "People": ("label",),
    "Machines and space": ("worker", "workers", "plan_memory", "clean"),
}
for command_function in COMMANDS:
    panel = next((panel for panel, names in PANELS.items() if command_function.__name__ in names), "Extensions")
    app.command(rich_help_panel=panel)(command_function)


def _convert_result_to_dict(result: StageResult) -> dict[str, object]:
    return {
        "state": result.state,
        "reason": result.reason,
        "seconds": round(result.seconds, 3),
        "mlflow_run_id": result.mlflow_run_id,
    }


if __name__ == "__main__":
    main()
