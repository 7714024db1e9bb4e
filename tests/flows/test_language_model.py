"""The flow as a process of its own, as people run it: Prefect's server, tasks, signals."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from flows.engine import prefect_server
from flows.engine.dvc_repository import PlanError
from tests.flows.engine.toy import Toy
from tests.flows.machine.test_supervisor import alive, wait_for

RUN = """
import sys
from pathlib import Path
from flows import language_model
from flows.engine.plan import plan
root = Path(sys.argv[1])
planned = plan(root, sys.argv[2:])
for result in language_model.run(root, planned, jobs=2, watch=lambda event: None):
    print(result.stage, result.state, result.mlflow_run_id)
"""
STUBBORN = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(f"{os.getpid()}.pid").write_text("")
if len(sys.argv) == 1:
    subprocess.Popen([sys.executable, __file__, "grandchild"], start_new_session=True)
time.sleep(300)
"""


def start(toy: Toy, *targets: str) -> subprocess.Popen[str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PREFECT")}
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(toy.root), *targets],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environ, "PYTHONPATH": os.pathsep.join(sys.path), "PREFECT_HOME": str(toy.root / "home")},
    )


def children_in(root: Path, recorders: bool = False) -> list[int]:
    """Processes that were started for this repository; only with `recorders` those that write records, which outlive a run for a moment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            recorder = b"flows.recorder" in (folder / "cmdline").read_bytes()
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


def test_a_configured_server_is_asked_and_none_is_started_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Prefect's settings name it, the server that was started before they were read is ended."""
    from prefect.settings import PREFECT_API_URL, temporary_settings

    ended: list[Path] = []
    monkeypatch.setattr(
        prefect_server, "TemporaryServer", lambda root: SimpleNamespace(stop=lambda: ended.append(root))
    )
    with (
        temporary_settings({PREFECT_API_URL: "http://127.0.0.1:1/api"}),
        pytest.raises(PlanError, match=r"^PREFECT_API_URL: http://127\.0\.0\.1:1/api: "),
    ):
        prefect_server.temporary_server(tmp_path)
    assert ended == [tmp_path]


@pytest.mark.slow
def test_a_flow_runs_from_this_installation(toy: Toy) -> None:
    toy.diamond()
    toy.stage("bad", "a", cmd="echo this is wrong; exit 1")
    toy.stage("lost", "bad")
    process = start(toy, "d", "lost")
    out, err = process.communicate(timeout=120)
    states = {line.split()[0]: line.split()[1] for line in out.splitlines()}
    assert states == {"a": "ran", "b": "ran", "c": "ran", "d": "ran", "bad": "failed", "lost": "skipped"}, err
    assert err == "", "nothing of Prefect's or MLflow's chatter"
    assert prefect_states(toy, "task_run") == {
        **dict.fromkeys("abcd", "Ran"),
        "bad": "Failed",
        "lost": "NotReady",
    }
    assert list(prefect_states(toy, "flow_run").values()) == ["Failed"]
    with sqlite3.connect(toy.root / "mlruns/prefect.db") as records:
        logged = [message for (message,) in records.execute("select message from log")]
    assert {"made data/a", "made data/d", "this is wrong"} <= set(logged), "a stage's output is in Prefect's log"
    wait_for(lambda: not children_in(toy.root, recorders=True), 30)
    assert not children_in(toy.root, recorders=True)
    assert toy.dvc("status", "d").strip() == "Data and pipelines are up to date."


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
    process = start(toy, "b")
    wait_for(lambda: len(alive(toy.root)) == 2 and "Running" in flow_states(toy), 90)
    assert len(alive(toy.root)) == 2
    assert flow_states(toy) == ["Running"], "stages start before Prefect is imported"
    family = [
        one for one in psutil.Process(process.pid).children(recursive=True) if "flows.recorder" not in one.cmdline()
    ]
    assert len(family) > len(alive(toy.root)), "the supervisors too"
    process.kill()
    process.communicate()
    wait_for(lambda: not any(map(running, family)) and not children_in(toy.root), 60)
    assert not any(map(running, family))
    assert not children_in(toy.root)
    wait_for(lambda: not children_in(toy.root, recorders=True), 60)
    assert toy.lock["stages"].keys() == {"a"}
    assert prefect_states(toy, "task_run") == {"a": "Ran", "b": "Crashed"}
    assert run_states(toy) == {"language": "KILLED", "a": "FINISHED", "b": "KILLED"}, "though no other run has come"

    toy.stage("b", "a", cmd="python work.py data/b data/a")
    out, err = start(toy, "b").communicate(timeout=120)
    assert [line.split()[:2] for line in out.splitlines()] == [["a", "up-to-date"], ["b", "ran"]], err
    assert flow_states(toy) == ["Crashed", "Completed"], "no flow run stays as running for ever"


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
    assert process.returncode != 0
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert not children_in(toy.root)
    assert toy.lock["stages"].keys() == {"a"}
    assert run_states(toy) == {"language": "KILLED", "a": "FINISHED", "b": "KILLED"}
