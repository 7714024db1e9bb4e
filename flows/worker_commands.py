"""`posttrain worker` and `posttrain workers`: machines that run stages for a coordinator elsewhere."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from flows import running
from flows.console.summary import PlainConsole
from flows.params.files import find_root


def worker(
    pool: Annotated[str, typer.Option(metavar="POOL", help="The work pool; it is made if there is none of this name.")],
    name: Annotated[str | None, typer.Option(help="The worker's name; by default host and process.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Stages at once; by default as many as there are GPUs, and at least one.")
    ] = None,
) -> int:
    """Run stages of a work pool on this machine, until Ctrl-C."""
    from flows.workers import prefect_worker

    with running.convert_errors_to_wrong_use():
        return prefect_worker.run_worker(find_root(), PlainConsole(), pool, name, limit)


def workers(json_: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False) -> int:
    """List the live workers: host, devices, what runs there, since when."""
    from flows.console.workers_list import print_live_workers
    from flows.workers import live_workers

    with running.convert_errors_to_wrong_use():
        live = live_workers.list_live_workers(find_root())
        held = live_workers.list_held_pool_reasons(find_root())
    if json_:
        print(json.dumps([asdict(listed) for listed in live]))
    else:
        print_live_workers(PlainConsole(), live, held)
    return 0
