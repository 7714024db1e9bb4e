"""`posttrain` as a process of its own, with Prefect and MLflow: recorded runs, a terminal, Ctrl-C, a pipe whose reader
leaves.
"""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.flows.toy_pipeline import GRAPH, call, environ, make_pipeline, posttrain

pytestmark = pytest.mark.slow


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """A pipeline in which nothing has run."""
    return make_pipeline(tmp_path / "toy")


@pytest.fixture
def root(fresh: Path) -> Path:
    """A pipeline in which every stage has run."""
    assert call(fresh, "run")[0] == 0
    return fresh


def test_json_lineage_and_pages_name_the_runs_that_made_what_is_there(fresh: Path) -> None:
    facts = json.loads(posttrain(fresh, "run", "--json").stdout)
    runs = {name: fact["mlflow_run_id"] for name, fact in facts.items()}
    assert all(len(run) == 32 for run in runs.values())
    again = json.loads(posttrain(fresh, "run", "--json").stdout)
    assert {fact["state"] for fact in again.values()} == {"up-to-date"}
    assert {name: fact["mlflow_run_id"] for name, fact in again.items()} == runs
    (fresh / "report.html").unlink()
    assert posttrain(fresh, "run").stdout.splitlines()[1:] == [
        "report: report.html",
        "report: report.md",
        "lineage: lineage.html",
    ]
    page = (fresh / "report.html").read_text()
    assert page.count(">up to date<") == 2 * len(GRAPH)
    assert all(run in page for run in runs.values())
    told = posttrain(fresh, "lineage", "data/dpo/result.json", "--full").stdout
    assert [word for word in told.split() if word.startswith("data/")] == ["data/dpo", "data/sft", "data/problems"]
    assert all(f", run {runs[name]}" in told for name in ("dpo", "sft", "problems"))
    assert posttrain(fresh, "lineage", "report").stdout.count("as above") == 1
    unknown = posttrain(fresh, "lineage", "nosuch")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
    assert unknown.stderr.startswith("posttrain: nosuch: nothing here is named so")


def test_ctrl_c_stops_with_one_line_and_130(root: Path) -> None:
    command = [sys.executable, "-m", "flows.cli", "run", "--set", "dpo.seconds=600"]
    run = subprocess.Popen(command, cwd=root, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout is not None
    for line in run.stdout:
        if line.startswith("dpo") and "running" in line:
            break
    run.send_signal(signal.SIGINT)
    _, error = run.communicate(timeout=300)
    assert run.returncode == 130
    assert error == "posttrain: stopped; what had finished is kept, and the next run goes on\n"
    code, out, _ = call(root, "run", "--json", "--set", "dpo.seconds=0")
    assert (code, json.loads(out)["dpo"]["state"]) == (0, "up-to-date")


def test_a_repository_that_is_renamed_during_a_run_stays_one(fresh: Path) -> None:
    """The run ends and says why; nothing makes the old folder anew, and the run goes on from where the repository is
    then.
    """
    params = (fresh / "params.yaml").read_text()
    (fresh / "params.yaml").write_text(params.replace("# of sft\n  seconds: 0", "# of sft\n  seconds: 600"))
    command, log = [sys.executable, "-m", "flows.cli", "run"], fresh / "mlruns/logs/sft.log"
    with subprocess.Popen(command, cwd=fresh, env=environ(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while not (log.is_file() and log.stat().st_size) and process.poll() is None:
            time.sleep(0.05)
        moved = fresh.rename(fresh.with_name("moved"))
        said = process.stdout.read()
    assert process.returncode in (1, 2)
    assert f"{fresh} is gone: it was renamed or deleted; run it again where the repository is now" in said
    (moved / "params.yaml").write_text(params)
    again = posttrain(moved, "run", "report")
    assert (again.returncode, again.stdout.count(" ran ")) == (0, 4), again.stdout
    assert not fresh.exists()


def test_on_a_terminal_there_is_the_table_and_no_chatter_of_what_works_below(root: Path) -> None:
    command = [sys.executable, "-m", "flows.cli", "run", "--set", "dpo.seconds=2"]  # the log's path in several redraws
    master, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    with subprocess.Popen(command, cwd=root, env=environ(), stdout=terminal, stderr=terminal) as run:
        os.close(terminal)
        shown = b""
        with suppress(OSError):  # Linux's error for a closed other end
            while part := os.read(master, 4096):
                shown += part
    os.close(master)
    assert run.returncode == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    words = {line.split()[0] for line in plain.replace("\r", "\n").splitlines() if line.strip()}
    expected = {*GRAPH, "params.yaml:", "Prefect's", "starting", "log:", "report:", "lineage:"}
    assert expected - {"starting"} <= words, "the first stage may have started before the first picture"
    assert all(word in expected or word.isdigit() for word in words), words - expected


def test_a_reader_that_leaves_does_not_stop_the_run(root: Path) -> None:
    command = [sys.executable, "-m", "flows.cli", "run", "--set", "dpo.beta=0.4"]
    run = subprocess.Popen(command, cwd=root, env=environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.stdout is not None
    assert run.stderr is not None
    run.stdout.readline()
    run.stdout.close()
    assert run.wait(timeout=60) == 0
    assert run.stderr.read() == b""
    run.stderr.close()
    assert (root / "data/dpo/result.json").read_text() == "0.4"
