"""The flow as a process of its own, as people run it: Prefect's server, tasks, signals."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import httpx
import psutil
import pytest

from tests.flows.engine.toy import Toy
from tests.flows.machine.test_supervisor import alive, wait_for

KEEPER = "flows.orchestration.server_keeper"
# Says that it waits, and makes its out when it may.
GATE = """
import pathlib, sys, time
pathlib.Path("waiting").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.05)
pathlib.Path(sys.argv[1]).write_text("made")
"""
STUBBORN = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(f"{os.getpid()}.pid").write_text("")
if len(sys.argv) == 1:
    subprocess.Popen([sys.executable, __file__, "grandchild"], start_new_session=True)
time.sleep(300)
"""


def start(toy: Toy, *targets: str, minutes: str = "0") -> subprocess.Popen[str]:
    """`posttrain run` with the repository's own Prefect server, which ends with it unless it stays for some minutes."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT")}
    own = {"PYTHONPATH": os.pathsep.join(sys.path), "POSTTRAIN_SERVER_MINUTES": minutes, "HOME": str(toy.root.parent)}
    return subprocess.Popen(
        [sys.executable, "-m", "flows.start", "run", *targets],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=toy.root,
        env={**environ, **own},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


OUTLIVES = (b"flows.journal_replayer", b"flows.orchestration.server_keeper", b"prefect", b"supervisor.py")


def children_in(root: Path, recorders: bool = False) -> list[int]:
    """Processes that were started for this repository; only with `recorders` those that outlive a run for a moment:
    what records, and the server.
    """
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            recorder = any(name in (folder / "cmdline").read_bytes() for name in OUTLIVES)
            ours = (folder / "cwd").readlink() == root and int(folder.name) != os.getpid()
            if state != "Z" and ours and (recorders or not recorder):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def prefect_states(toy: Toy, table: str) -> dict[str, str]:
    with sqlite3.connect(toy.root / "mlruns/prefect.db") as records:
        return dict(records.execute(f"select name, state_name from {table}"))


def run_states(toy: Toy) -> dict[str, str]:
    with sqlite3.connect(toy.root / "mlruns/mlflow.db") as records:
        return dict(records.execute("select name, status from runs"))


def flow_states(toy: Toy) -> list[str]:
    """The states of the flow runs that Prefect knows, in their order; none before its server has made its tables."""
    with closing(sqlite3.connect(toy.root / "mlruns/prefect.db")) as records, suppress(sqlite3.OperationalError):
        return [state for (state,) in records.execute("select state_name from flow_run order by start_time")]
    return []


def ended(toy: Toy) -> None:
    """Return when what outlives a run has ended as well."""
    wait_for(lambda: not children_in(toy.root, recorders=True), 60)
    assert not children_in(toy.root, recorders=True)


@pytest.mark.slow
def test_a_flow_runs_from_this_installation(toy: Toy) -> None:
    toy.diamond()
    toy.stage("bad", "a", cmd="echo this is wrong; exit 1")
    toy.stage("lost", "bad")
    process = start(toy, "d", "lost")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err == "", "nothing of Prefect's or MLflow's chatter"
    assert "1 failed, 1 skipped, 4 ran" in out
    ended(toy)
    assert prefect_states(toy, "task_run") == {
        **dict.fromkeys("abcd", "Ran"),
        "bad": "Failed",
        "lost": "NotReady",
    }
    assert prefect_states(toy, "flow_run") == {"run language to d, lost": "Failed"}
    with sqlite3.connect(toy.root / "mlruns/prefect.db") as records:
        logged = [message for (message,) in records.execute("select message from log")]
    assert {"made data/a", "made data/d", "this is wrong"} <= set(logged), "a stage's output is in Prefect's log"
    assert toy.dvc("status", "d").strip() == "Data and pipelines are up to date."
    assert not [*toy.root.parent.glob(".prefect")], "nothing is written to the user's home"


@pytest.mark.slow
def test_a_server_that_is_killed_is_there_again_and_one_that_stays_away_costs_no_result(toy: Toy) -> None:
    toy.stage("a")
    toy.write("gate.py", GATE)
    toy.stage("b", "a", cmd="python gate.py data/b")
    toy.stage("c", "b")
    process = start(toy, "c")
    wait_for(lambda: (toy.root / "waiting").exists(), 90)
    [server] = [one for one in map(psutil.Process, children_in(toy.root, recorders=True)) if "server" in one.cmdline()]
    server.kill()
    address = json.loads((toy.root / "mlruns/prefect-server.json").read_text())["url"]
    wait_for(lambda: server.pid not in psutil.pids() or not running(server), 20)
    wait_for(lambda: answers(f"{address}/health"), 90)
    assert answers(f"{address}/health"), "at the same address"
    (toy.root / "go").touch()
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, ""), out
    ended(toy)
    assert flow_states(toy) == ["Completed"]

    (toy.root / "go").unlink()
    (toy.root / "waiting").unlink()
    toy.set(b=2)
    process = start(toy, "c")
    wait_for(lambda: (toy.root / "waiting").exists(), 90)
    [keeper] = [one for one in map(psutil.Process, children_in(toy.root, recorders=True)) if KEEPER in one.cmdline()]
    keeper.kill()
    wait_for(lambda: not answers(f"{address}/health"), 20)
    (toy.root / "go").touch()
    out, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "Prefect's server cannot be reached" in out + err
    assert "Traceback" not in out + err
    assert toy.reasons("b")["b"] is None, "what was running has finished, and is kept"


def answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.HTTPError:
        return False


def running(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
@pytest.mark.core
def test_a_kill_leaves_no_child_and_the_next_run_finishes(toy: Toy) -> None:
    toy.stage("a")
    toy.write("stubborn.py", STUBBORN)
    toy.stage("b", "a", cmd="python stubborn.py")
    process = start(toy, "b", minutes="5")
    wait_for(lambda: len(alive(toy.root)) == 2, 90)
    assert len(alive(toy.root)) == 2
    family = [
        one
        for one in psutil.Process(process.pid).children(recursive=True)
        if not {"flows.journal_replayer", KEEPER, "prefect"} & {*one.cmdline()} and KEEPER not in str(one.cmdline())
    ]
    assert len(family) > len(alive(toy.root)), "the supervisors too"
    process.kill()
    process.communicate()
    wait_for(lambda: not children_in(toy.root), 60)
    assert not children_in(toy.root)
    assert toy.lock["stages"].keys() == {"a"}
    wait_for(lambda: run_states(toy).get("b") == "KILLED", 60)
    assert run_states(toy) == {"language": "KILLED", "a": "FINISHED", "b": "KILLED"}, "though no other run has come"

    toy.stage("b", "a", cmd="python work.py data/b data/a")
    out, err = start(toy, "b").communicate(timeout=120)
    assert "1 ran, 1 up to date" in out, err
    wait_for(lambda: flow_states(toy) == ["Crashed", "Completed"], 20)
    assert flow_states(toy) == ["Crashed", "Completed"], "no flow run stays as running for ever"
    stop = [sys.executable, "-m", "flows.start", "ui", "--stop"]
    subprocess.run(
        stop, cwd=toy.root, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    ended(toy)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_children(toy: Toy, sent: signal.Signals) -> None:
    toy.stage("a")
    toy.write("stubborn.py", STUBBORN)
    toy.stage("b", "a", cmd="python stubborn.py")
    toy.stage("c", "b")
    process = start(toy, "c")
    wait_for(lambda: len(alive(toy.root)) == 2, 90)
    process.send_signal(sent)
    wait_for(lambda: not alive(toy.root), 60)
    assert not alive(toy.root)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert err == "posttrain: stopped; what had finished is kept, and the next run goes on\n"
    ended(toy)
    assert toy.lock["stages"].keys() == {"a"}
    assert run_states(toy) == {"language": "KILLED", "a": "FINISHED", "b": "KILLED"}
    assert not {"Running", "Pending"} & {*flow_states(toy)}
