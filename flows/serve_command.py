"""`posttrain serve`: the flows as Prefect deployments, which its page, API, schedules and automations can start and
cancel.
"""

import importlib
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flows import flow_run, running
from flows.console.completion import FLOWS
from flows.console.summary import PlainConsole
from flows.machine import files
from flows.params.files import find_root

NAME = "posttrain"  # of each deployment: language/posttrain and so on
POLL_SECONDS = 2  # between two questions of Prefect's runner whether something is to start or to end


def serve(
    flows: Annotated[list[str] | None, typer.Argument(help="Which flows; all three by default.")] = None,
    cron: Annotated[
        str, typer.Option(metavar="'0 2 * * *'", help="Run the named flows, or the language flow, at these times.")
    ] = "",
) -> int:
    """Serve the flows, so that Prefect's page, API, schedules and automations can start and cancel them; until
    Ctrl-C.
    """
    console = PlainConsole()
    served = flows or [*FLOWS]
    if unknown := [name for name in served if name not in FLOWS]:
        raise running.WrongUseError(f"serve: no flow {unknown[0]}; expected {', '.join(FLOWS)}")
    try:
        with running.convert_errors_to_wrong_use():
            _serve_deployments(find_root(), console, served, (flows or ["language"]) if cron else [], cron)
    except KeyboardInterrupt:
        console.print("stopped")
    return 0


def _serve_deployments(root: Path, console: Console, served: list[str], scheduled: list[str], cron: str) -> None:
    from flows.orchestration import server, server_keeper

    server.set_prefect_mlflow_env_defaults(root)
    files.make_folder(root, server_keeper.HOME)  # Prefect warns where it is not there
    from prefect import serve as serve_flows
    from prefect.settings import PREFECT_RUNNER_POLL_FREQUENCY, temporary_settings

    try:
        deployments = [
            getattr(importlib.import_module(running.MODULES[name]), name).to_deployment(
                NAME, cron=cron if name in scheduled else None, tags=[server.build_clone_tag(root)]
            )
            for name in served
        ]
    except ValueError:
        raise running.WrongUseError(f"--cron: expected five fields such as '0 2 * * *', got {cron!r}") from None
    with ExitStack() as stack:
        prefect_server = stack.enter_context(flow_run.open_prefect_server(root, console))
        stack.enter_context(server.connect_prefect_clients(prefect_server, root, partial(console.print, markup=False)))
        stack.enter_context(temporary_settings({PREFECT_RUNNER_POLL_FREQUENCY: POLL_SECONDS}))
        for name in served:
            when = f", at {cron}" if name in scheduled else ""
            console.print(f"serves {name}/{NAME}{when}", markup=False)
        console.print(
            f"Start one in the page that `posttrain ui` shows, or by `prefect deployment run {served[0]}/{NAME}`."
        )
        serve_flows(*deployments, print_starting_message=False)
