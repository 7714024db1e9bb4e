"""`posttrain ui`: both pages answer on loopback, on other ports if theirs are taken, and are gone after Ctrl-C."""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from io import StringIO
from pathlib import Path

import pytest
from mlflow import MlflowClient
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.console.summary import PlainConsole
from flows.engine import mlflow_client, server_guard
from flows.engine.dvc_repository import PlanError
from flows.engine.server_guard import find_free_port
from flows.orchestration import server_keeper
from flows.web import servers
from tasks.common import mlflow_database
from tests.flows.machine.test_supervisor import wait_for

REPOSITORY = Path(__file__).parents[3]


def test_a_taken_port_is_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        usual = taken.getsockname()[1]
        assert find_free_port(usual) != usual
    assert find_free_port(usual) == usual


def test_a_server_that_ends_is_told_with_the_end_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [sys.executable, "-c", "raise SystemExit('no such table')"]
    monkeypatch.setattr(
        mlflow_client, "open_mlflow_client_after_recording", lambda root: None
    )  # that it is opened first: test_cli.py
    monkeypatch.setattr(server_guard, "build_server_command", lambda port: broken)
    out = StringIO()
    with temporary_settings({PREFECT_API_URL: "http://prefect.example:4200/api"}):
        monkeypatch.setenv("PREFECT_API_URL", "http://prefect.example:4200/api")
        assert servers.run_web_servers(tmp_path, PlainConsole(out)) == 1
    elsewhere, starting, _, *ended = out.getvalue().splitlines()
    assert elsewhere == "Prefect  http://prefect.example:4200 (PREFECT_API_URL)"
    assert starting == "Starting MLflow; this takes up to half a minute."
    assert ended == ["  no such table", "MLflow's server has ended; its log: mlruns/logs/mlflow-pages.log"]


def test_mlflow_opens_at_the_table_of_pipeline_runs_of_the_flow_that_ran_last(tmp_path: Path) -> None:
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    assert servers._build_mlflow_url_fragment(client) == ""
    for flow, started in (("language", 1), ("agents", 3), ("offline", 2)):
        experiment = client.create_experiment(flow, artifact_location=str(tmp_path))
        client.create_run(experiment, start_time=started, tags={"posttrain.flow": flow})
        client.create_run(experiment, start_time=started + 5, tags={"posttrain.stage": "report"})
    agents = client.get_experiment_by_name("agents")
    assert agents is not None
    [newest] = client.search_runs([agents.experiment_id], servers.PIPELINES)
    for metric in ("dqn/balance/return", "dqn/balance/return/low", "dqn/seconds"):
        client.log_metric(newest.info.run_id, metric, 0.5)
    assert servers._build_mlflow_url_fragment(client) == (
        f"#/experiments/{agents.experiment_id}/runs?viewStateShareKey=posttrain&workflowType=machine_learning"
    )
    view = json.loads(client.get_experiment(agents.experiment_id).tags["mlflow.sharedViewState.posttrain"])
    shown = client.search_runs([agents.experiment_id], view["searchFilter"])
    assert [run.data.tags["posttrain.flow"] for run in shown] == ["agents"]
    assert view["selectedColumns"] == ["attributes.`Models`", "metrics.`dqn/balance/return`"]


def test_headline_columns_are_each_policys_first_measure_and_then_its_second() -> None:
    metrics = ["dpo/lenient_greedy", "dpo/strict_greedy", "sft/strict_greedy", "sft/strict_greedy/low", "sft/tokens"]
    assert servers.select_headline_metrics(metrics) == ["dpo/strict_greedy", "sft/strict_greedy", "dpo/lenient_greedy"]
    assert len(servers.select_headline_metrics(f"policy{seed}/strict_greedy" for seed in range(40))) == 12


def test_a_port_that_is_asked_for_is_taken_or_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PlanError, match=rf"^--port {port}: something else listens there$"):
            servers._check_port_free(port)
    assert servers._check_port_free(port) == port


def test_of_servers_elsewhere_only_the_address_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_client, "open_mlflow_client_after_recording", lambda root: None)
    monkeypatch.setattr(server_guard, "build_server_command", lambda port: pytest.fail("nothing is started"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:made-up-word@mlflow.example:5000/?token=made-up-word")
    out, address = StringIO(), "http://me:made-up-word@prefect.example:4200/api"
    monkeypatch.setenv("PREFECT_API_URL", address)
    with temporary_settings({PREFECT_API_URL: address}):
        assert servers.run_web_servers(tmp_path, PlainConsole(out)) == 0
    assert out.getvalue().splitlines() == [
        "Prefect  http://prefect.example:4200 (PREFECT_API_URL)",
        "MLflow   https://mlflow.example:5000/ (MLFLOW_TRACKING_URI)",
    ]


def test_a_database_elsewhere_gets_its_page_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database has no page of its own; its password goes to the server's environment and nowhere else."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:made-up-word@db.example/runs")
    monkeypatch.setattr(mlflow_database, "check_and_repair_records", lambda _: None)  # as where it can be opened
    out = StringIO()
    environ = servers._build_mlflow_env_and_print_address(tmp_path, PlainConsole(out))
    assert environ is not None
    assert environ["_MLFLOW_SERVER_FILE_STORE"] == "postgresql://me:made-up-word@db.example/runs"
    assert "MLflow   postgresql://db.example/runs (MLFLOW_TRACKING_URI)" in out.getvalue()
    assert "made-up-word" not in out.getvalue()


@pytest.mark.slow
def test_both_pages_answer_until_ctrl_c_and_prefect_until_it_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    environ = {**os.environ, "PYTHONPATH": str(REPOSITORY), "HTTP_PROXY": "http://127.0.0.1:9"}
    with socket.socket() as taken:  # MLflow's usual port, unless it is taken already
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 5000))
            taken.listen()
        except OSError:
            pass
        command = [sys.executable, "-m", "flows.cli", "ui"]
        ui = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environ,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(
                signal.SIGINT, signal.SIG_DFL
            ),  # ignored where the tests run in the background
        )
        assert ui.stdout is not None
        assert ui.stdout.readline().startswith("Starting Prefect and MLflow; ")
        name, prefect, _, secret = ui.stdout.readline().split()
        assert name == "Prefect"
        name, address = ui.stdout.readline().split()
        assert name == "MLflow"
        assert ui.stdout.readline().endswith("Ctrl-C stops the pages.\n")
        mlflow = address.partition("/?token=")[0]
        assert all(url.startswith("http://127.0.0.1:") for url in (prefect, mlflow))
        assert mlflow != "http://127.0.0.1:5000"
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(mlflow)
        assert b"<html" in fetch(address), "a browser keeps the cookie that it is given"
        assert json.loads(fetch(mlflow + "/ajax-api/2.0/mlflow/experiments/search?max_results=5"))
        assert json.loads(fetch(prefect + "/ui-settings"))["api_url"] == prefect + "/api"
        wait_for(lambda: server_keeper.POLICY.encode() in fetch(prefect + "/v2/"), 20)
        assert server_keeper.POLICY.encode() in fetch(prefect + "/v2/"), "its page asks no other host"
        count = urllib.request.Request(prefect + "/api/flow_runs/count", method="POST")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(count)
        count.add_header("Authorization", "Basic " + base64.b64encode(secret.encode()).decode())
        with urllib.request.urlopen(count) as answer:
            assert answer.read() == b"0"
        ui.send_signal(signal.SIGINT)
        assert ui.communicate(timeout=120)[0] == "stopped\n"
        assert ui.returncode == 0
    with pytest.raises(urllib.error.URLError):
        fetch(mlflow)
    assert json.loads(fetch(prefect + "/ui-settings")), "it stays for the next run"
    stopped = subprocess.run(
        [*command, "--stop"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    )
    assert stopped.stdout == "Prefect's server has ended\n"
    with pytest.raises(urllib.error.URLError):
        fetch(prefect)
    again = subprocess.run([*command, "--stop"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
    assert again.stdout == "no Prefect server of this repository runs\n"


BROWSER = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())


def fetch(url: str) -> bytes:
    with BROWSER.open(url, timeout=10) as answer:
        content: bytes = answer.read()
        return content
