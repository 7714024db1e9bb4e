"""`posttrain accept`: a stage stays as it is after a change, because a person says so."""

from typing import Annotated

import typer

from flows import running
from flows.console import completion
from flows.console.summary import Screen
from flows.params.files import find_root
from flows.running import WrongUseError, one_line


def accept(
    stage: Annotated[
        str, typer.Argument(metavar="STAGE", help="A stage of dvc.yaml.", autocompletion=completion.stages)
    ],
    why: Annotated[
        str, typer.Option("--why", metavar="TEXT", help="Why the change does not change what it makes.")
    ] = "",
) -> int:
    """Record that a stage stays as it is after a change of its code, parameters or command, because you say so."""
    from flows.console.causes import show
    from flows.lineage.acceptance import accepting

    root, console = find_root(), Screen()
    if not why.strip():
        raise WrongUseError('accept: expected a reason, as in --why "a faster loop, the same sums"')
    if stage in running.FLOWS:
        raise WrongUseError(f"accept {stage}: that is a flow; expected a stage")
    [(flow, planned)] = running.plan(root, [stage], [])
    named = [one for one in planned if one.name == stage or one.name.startswith(f"{stage}@")]
    late = [one for one in named if one.reason]
    if above := [one.name for one in planned if one.reason and one not in named]:
        raise WrongUseError(f"{stage}: {', '.join(above[:3])} above it is out of date; run that first")
    if not late and any(one.accepts for one in named):
        raise WrongUseError(f"{stage}: the edits of its code have no effect; `posttrain run` records that by itself")
    if not late:
        raise WrongUseError(f"{stage} is up to date, so there is nothing to accept")
    with one_line():
        show(console, root, late)
        accepting.accept_change(root, flow, [one.name for one in late], " ".join(why.split()))
    names = ", ".join(one.name for one in late)
    console.print(f"accepted for {names}, as you say so; `posttrain audit` tells it as vouched for", markup=False)
    return 0
