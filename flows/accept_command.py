"""`posttrain accept`: a stage stays as it is after a change, because a person says so."""

from typing import Annotated

import typer

from flows import running
from flows.console import completion
from flows.console.summary import PlainConsole
from flows.engine import stage_code
from flows.params.files import find_root
from flows.running import WrongUseError, convert_errors_to_wrong_use


def accept(
    stage: Annotated[
        str,
        typer.Argument(
            metavar="STAGE", help="A stage of dvc.yaml, or a flow.", autocompletion=completion.complete_stages
        ),
    ],
    why: Annotated[
        str, typer.Option("--why", metavar="TEXT", help="Why the change does not change what it makes.")
    ] = "",
) -> int:
    """Record that a stage, or each stage of a flow, stays as it is after a change of code, parameters or command,
    because you say so.
    """
    from flows.console.staleness_causes import print_staleness_causes
    from flows.lineage.acceptance import accepting

    root = find_root()
    console = PlainConsole()
    if not why.strip():
        raise WrongUseError('accept: expected a reason, as in --why "a faster loop, the same sums"')
    [(flow, planned)] = running.check_and_plan_targets(root, [stage], [])
    if any(planned_stage.reason and planned_stage.name == stage_code.STAGE for planned_stage in planned):
        running.run_targets(root, console, [stage_code.STAGE])
        [(flow, planned)] = running.check_and_plan_targets(root, [stage], [])
    named = [
        planned_stage
        for planned_stage in planned
        if stage in running.FLOWS or stage in (planned_stage.name, planned_stage.name.split("@")[0])
    ]
    late = [planned_stage for planned_stage in named if planned_stage.reason]
    if above := [
        planned_stage.name for planned_stage in planned if planned_stage.reason and planned_stage not in named
    ]:
        raise WrongUseError(f"{stage}: {', '.join(above[:3])} above it is out of date; run that first")
    if not late:
        raise WrongUseError(f"{stage} is up to date, so there is nothing to accept")
    with convert_errors_to_wrong_use():
        print_staleness_causes(console, root, late)
        accepting.accept_change(root, flow, [planned_stage.name for planned_stage in late], " ".join(why.split()))
    names = ", ".join(planned_stage.name for planned_stage in late)
    console.print(f"accepted for {names}, as you say so; `posttrain audit` tells it as vouched for", markup=False)
    return 0
