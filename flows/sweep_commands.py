"""`posttrain sweep` and `posttrain apply`: many points of params.yaml as one graph, and one of them for the
workspace.
"""

import json
import sys
import time
from typing import Annotated

import typer

from flows.console import completion as tab
from flows.console.summary import PlainConsole
from flows.params.files import find_root
from flows.running import WrongUseError, convert_errors_to_wrong_use
from tasks.common.terminal import format_in_one_line

STARTED = time.monotonic()


def sweep(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="SECTION.KEY=VALUE,.. [STAGE]..",
            help="Parameters with the values to try, and stages or flows to stop at.",
            autocompletion=tab.complete_param_edits,
        ),
    ],
    seeds: Annotated[str, typer.Option(metavar="0,1,2", help="Run every point with each of these seeds.")] = "",
    random: Annotated[
        int | None, typer.Option("--random", min=1, metavar="N", help="Draw N points of the grid.")
    ] = None,
    metric: Annotated[
        str, typer.Option(metavar="POLICY/METRIC", help="The number to sort by, such as dpo/strict_greedy.")
    ] = "",
    early: Annotated[
        str,
        typer.Option(
            metavar="NUMBER",
            help="Compare trainings on their way by this number of their curves, such as eval_accuracy, and train "
            "only the better half on.",
        ),
    ] = "",
    jobs: Annotated[int | None, typer.Option(min=1, help="Cores to use at most.")] = None,
    pool: Annotated[
        str,
        typer.Option(
            metavar="POOL", envvar="POSTTRAIN_POOL", help="Run stages that ask for a GPU on the workers of this pool."
        ),
    ] = "",
    with_patch: Annotated[
        bool, typer.Option("--with-patch", help="Send workers that have a clone of their own what is not committed.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the graph and what would run.")] = False,
    cold: Annotated[bool, typer.Option("--cold", help="Start each stage as a new process.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="End with one JSON object.")] = False,
) -> int:
    """Run the pipeline at many points of its parameters as one graph; what points share runs once, and the workspace
    stays as it is.
    """
    from flows import sweeping
    from flows.sweeps import axes

    root = find_root()
    console = PlainConsole(sys.stderr if json_ else sys.stdout)
    varied = [axes.parse_axis(text) for text in arguments if "=" in text]
    targets = [text for text in arguments if "=" not in text]
    if not varied and not seeds:
        raise WrongUseError("sweep: expected a parameter with the values to try, such as dpo.beta=0.05,0.1,0.2")
    points = axes.build_grid_points(varied, axes.parse_seeds_axis(seeds), random)
    options = sweeping.SweepOptions(jobs, dry_run, cold, metric, early, not targets, pool, with_patch, STARTED)
    outcome = sweeping.run_sweep_points(
        root, console, points, targets or sweeping.find_varied_flows(root, varied), options
    )
    if json_:
        print(json.dumps({"points": outcome.points}))
    return int(not outcome.good)


def apply(
    point: Annotated[
        str,
        typer.Argument(
            metavar="POINT",
            help="Its number or name in the last sweep, or the id of any run that kept its params.yaml.",
        ),
    ],
) -> int:
    """Lay the parameters of a sweep's point, or of a pipeline run, over params.yaml."""
    from flows.params import checking, editing
    from flows.sweeps import sweep_runs

    root = find_root()
    with convert_errors_to_wrong_use():
        run, text = sweep_runs.get_run_and_params(root, point)
    types = checking.load_config_classes(root)
    changes = editing.edit_params(root, types, editing.build_edits_from_text(root, types, text, f"run {run.id[:8]}"))
    for change in changes or [f"has the values of {run.name or run.id[:8]} already"]:
        print(f"params.yaml: {format_in_one_line(change)}")
    return 0
