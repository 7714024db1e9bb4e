"""Prefect's and MLflow's own pages over this repository's records, on loopback, until Ctrl-C; or where they are, if
they are elsewhere.
"""

import json
import os
import shlex
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

from flows.console.summary import format_relative_path, read_log_tail
from flows.engine import mlflow_client, mlflow_run_lookup, server_guard
from flows.engine.dvc_repository import PlanError
from flows.engine.server_guard import GuardedServer, find_free_port
from flows.lineage import registered_models
from flows.orchestration import server, server_keeper
from tasks.common import mlflow_address, mlflow_database

if TYPE_CHECKING:
    from mlflow import MlflowClient

LOOK_SECONDS = 0.5  # between two looks whether a page has ended
PIPELINES = f"tags.`{mlflow_run_lookup.PREFIX}flow` != ''"  # MLflow's search for runs of whole flows
VIEW = "posttrain"  # the name under which MLflow keeps the table of pipeline runs
COLUMNS = 12  # of metrics in that table
RECENT = 20  # runs, of which the newest with headline metrics gives the columns
QUIET = {"DO_NOT_TRACK": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}


class Page(NamedTuple):
    """A page that this process shows: its log, and whether it has ended."""

    log: Path
    ended: Callable[[], bool]


def run_web_servers(root: Path, console: Console, port: int | None = None) -> int:
    """Start the pages, print their addresses, and stay until Ctrl-C or until one of them ends (then 1).

    MLflow's listens on `port`; without one on 5000, or any free port if that is in use. Prefect's is that of the
    repository's own server. A server that MLFLOW_TRACKING_URI or Prefect's configuration names has pages of its own:
    only its address is printed.
    """
    pages: dict[str, Page] = {}
    with ExitStack() as stack:
        client = mlflow_client.open_mlflow_client_after_recording(
            root
        )  # the database is created if missing, and checked
        (root / mlflow_database.ARTIFACTS).mkdir(parents=True, exist_ok=True)
        if (
            configured := server.find_redacted_configured_api_url() if server.can_have_configured_server(root) else None
        ) is not None:
            console.print(f"Prefect  {configured.removesuffix('/api')} (PREFECT_API_URL)", markup=False)
        else:
            prefect = stack.enter_context(closing(server.Server(root)))
            pages["Prefect"] = Page(root / server_keeper.LOG, lambda: not server.is_keeper_running(root))
        if (variables := _build_mlflow_env_and_print_address(root, console)) is not None:
            log = root / "mlruns/logs/mlflow-pages.log"
            log.unlink(missing_ok=True)
            mlflow = GuardedServer(
                root, find_free_port(5000) if port is None else _check_port_free(port), variables, log
            )
            stack.callback(mlflow.stop)
            pages["MLflow"] = Page(log, mlflow.ended)
        if not pages:
            return 0
        console.print(f"Starting {' and '.join(pages)}; this takes up to half a minute.", markup=False)
        if "Prefect" in pages:
            prefect.wait()
            secret = server.build_client_environment(root)["PREFECT_API_AUTH_STRING"]
            console.print(f"Prefect  {prefect.url.removesuffix('/api')}  password {secret}", markup=False)
        if "MLflow" in pages and mlflow.wait_until_ready():
            console.print(
                "MLflow   "
                f"{mlflow.url}/?token={server_guard.load_or_create_token(root)}{_build_mlflow_url_fragment(client)}",
                markup=False,
            )
        console.print("These lines have this repository's token: do not pass them on. Ctrl-C stops the pages.")
        while True:
            for name, page in pages.items():
                if page.ended():
                    return _print_server_end(console, name, page.log, root)
            time.sleep(LOOK_SECONDS)


def _build_mlflow_url_fragment(client: "MlflowClient") -> str:
    """The end of the address that opens MLflow at the table of pipeline runs of the flow that ran last, with its
    headline metrics as columns; "" before the first run.

    MLflow reads a table's filter and columns from a tag of the experiment that the address names, and without the type
    of work it would open a page of traces.
    """
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    newest = client.search_runs(experiments, PIPELINES, order_by=["attributes.start_time DESC"], max_results=RECENT)
    if not newest:
        return ""
    experiment = newest[0].info.experiment_id
    runs = [run for run in newest if run.info.experiment_id == experiment]
    metrics = next(filter(None, (select_headline_metrics(run.data.metrics) for run in runs)), [])
    columns = [f"metrics.`{metric}`" for metric in metrics]
    view = {"searchFilter": PIPELINES, "selectedColumns": ["attributes.`Models`", *columns]}
    client.set_experiment_tag(experiment, f"mlflow.sharedViewState.{VIEW}", json.dumps(view))
    return f"#/experiments/{experiment}/runs?viewStateShareKey={VIEW}&workflowType=machine_learning"


def select_headline_metrics(metrics: Iterable[str]) -> list[str]:
    """Of a pipeline run's metrics, at most COLUMNS that a person compares first: every policy's first measure, then
    its second, without the ends of intervals.
    """
    ranks = dict[str, int]()
    for metric in metrics:
        measure = metric.partition("/")[2]
        starts = [rank for rank, start in enumerate(registered_models.HEADLINE) if measure.startswith(start)]
        if metric.endswith(registered_models.UNITS):
            ranks[metric] = 0
        elif starts and not metric.endswith(("/low", "/high")):
            ranks[metric] = starts[0]
    return sorted(ranks, key=lambda metric: (ranks[metric], metric))[:COLUMNS]


def _build_mlflow_env_and_print_address(root: Path, console: Console) -> dict[str, str] | None:
    """The variables of MLflow's page; None where the records are on a server with a page of its own.

    An address elsewhere is printed.
    """
    with mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
        elsewhere = mlflow_address.find_shared_address(root)
    if elsewhere is not None:
        console.print(f"MLflow   {mlflow_address.redact_address(elsewhere)} ({mlflow_address.VARIABLE})", markup=False)
    if elsewhere is not None and mlflow_address.is_server_address(elsewhere):
        return None
    return {**QUIET, **mlflow_client.build_mlflow_server_environ(root)}


def stop_prefect_server(root: Path, console: Console) -> int:
    """End the repository's own Prefect server; 0 whether there was one or not."""
    console.print(
        "Prefect's server has ended" if server.stop_server(root) else "no Prefect server of this repository runs"
    )
    return 0


def start_server_and_print_environment(root: Path) -> int:
    """Start the repository's own Prefect server if it does not run, and print what sets the environment for it, for a
    shell.
    """
    with closing(server.Server(root)) as starting:
        starting.wait()
        for name, value in {
            **server.build_client_environment(root),
            **server.build_no_proxy_variables(os.environ),
        }.items():
            print(f"export {name}={shlex.quote(value)}")
    return 0


def _check_port_free(port: int) -> int:
    """The port; PlanError if it is not free."""
    if find_free_port(port) != port:
        raise PlanError(f"--port {port}: something else listens there")
    return port


def _print_server_end(console: Console, name: str, log: Path, root: Path) -> int:
    for line in read_log_tail(log):
        console.print(f"  {mlflow_address.redact_secrets(line)}", markup=False)
    console.print(f"{name}'s server has ended; its log: {format_relative_path(log, root)}", markup=False)
    return 1
