"""`posttrain serve --cron`: a schedule starts the flow by itself, and a text that is no schedule is one line."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows import serve_command
from flows.console.summary import PlainConsole
from flows.orchestration import server, server_keeper
from flows.running import WrongUseError
from tests import prefect_server
from tests.flows.engine.toy import Toy

SECONDS = 300  # Prefect's scheduler looks once a minute, and a loaded machine takes as long to start a flow


@pytest.mark.slow
def test_a_schedule_starts_the_flow_and_its_stage_runs(toy: Toy) -> None:
    toy.stage("report")
    cron = "*/1 * * * *"
    environ = {**os.environ, **prefect_server.variables(), "PYTHONPATH": os.pathsep.join(sys.path), "DO_NOT_TRACK": "1"}
    command = [sys.executable, "-m", "flows.start", "serve", "language", "--cron", cron]
    with (toy.root.parent / "served.log").open("w") as log:
        process = subprocess.Popen(command, cwd=toy.root, env=environ, stdout=log, stderr=log)
    try:
        deployed = {"name": {"like_": "posttrain"}, "tags": {"all_": [server.build_clone_tag(toy.root)]}}
        runs, deadline = [], time.monotonic() + SECONDS
        while not runs and time.monotonic() < deadline:
            time.sleep(0.5)
            runs = prefect_server.ask(
                "/flow_runs/filter", deployments=deployed, flow_runs={"state": {"type": {"any_": ["COMPLETED"]}}}
            )
        log_text = (toy.root.parent / "served.log").read_text()
        assert runs, (log_text, prefect_server.ask("/flow_runs/filter", deployments=deployed))
        assert runs[0]["auto_scheduled"]
        assert runs[0]["name"] == "run language"
        assert toy.lock["stages"].keys() == {"report"}
        [deployment] = prefect_server.ask("/deployments/filter", deployments=deployed)
        assert [each["schedule"]["cron"] for each in deployment["schedules"]] == [cron]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


@pytest.mark.parametrize("cron", ["every day", "0 2 * *", "61 * * * *"])
def test_a_wrong_schedule_is_one_line_before_a_server_is_started(cron: str, tmp_path: Path) -> None:
    with pytest.raises(WrongUseError, match=r"^--cron: expected five fields such as '0 2 \* \* \*', got '") as caught:
        serve_command._serve_deployments(tmp_path, PlainConsole(), ["language", "agents"], ["language"], cron)
    assert cron in str(caught.value)
    assert not (tmp_path / server_keeper.NOTE).exists()
    assert not server.is_keeper_running(tmp_path)
