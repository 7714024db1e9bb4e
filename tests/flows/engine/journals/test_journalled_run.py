"""What the process that records makes of a journal, held against what a run records by itself; and what a kill of
either leaves.
"""

import fcntl
import json
import os
import random
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from flows.engine import mlflow_run_lookup
from flows.engine.coordinator import Coordinator
from flows.engine.dvc_repository import PlanError
from flows.engine.execute import Execution
from flows.engine.journals import journal, journalled_run, replay_process
from flows.engine.journals.journalled_run import JournalledRun
from flows.engine.journals.recorder_protocol import Recorder
from flows.engine.mlflow_flow_recorder import FlowRecorder
from flows.engine.stage_types import StageResult
from tests.flows.engine import in_order
from tests.flows.engine.toy import Toy
from tests.flows.toy_pipeline import make_pipeline, posttrain

RECORDS = """
import json, os, pathlib, sys, time
rows = [{"params": {"seed": "0"}}, *({"metrics": {"loss": 1 / (step + 1)}, "step": step, "time": 5} for step in range(20))]
rows += [{"table": {"columns": ["a"], "data": [[1]]}, "name": "samples.json"}, {"nonsense": 1}]
pathlib.Path(os.environ["POSTTRAIN_RECORDS"]).write_text("".join(json.dumps(row) + "\\n" for row in rows))
print("working")
pathlib.Path("data").mkdir(exist_ok=True)
pathlib.Path("data/a").write_text("made")
"""  # noqa: E501
FOREIGN = """
import os, pathlib
from mlflow import MlflowClient
MlflowClient().log_metric(os.environ["MLFLOW_RUN_ID"], "mine", 2.0)
pathlib.Path("data").mkdir(exist_ok=True)
pathlib.Path("data/a").write_text("made")
"""
OF_THE_RUN = ("mlflow.parentRunId", "posttrain.seal", "posttrain.run.", "posttrain.git_commit", "mlflow.source.git")


@pytest.fixture
def varied(make_toy: Any) -> Any:
    """Makes a repository with a stage that records all kinds of rows, one that fails, one that is lost by that, and one
    that is fine.
    """

    def make(name: str) -> Toy:
        toy: Toy = make_toy(name)
        toy.write("records.py", RECORDS)
        toy.stage("a", cmd="python records.py")
        toy.stage("b", "a")
        toy.stage("bad", "b", cmd="echo this is wrong; exit 1")
        toy.stage("lost", "bad")
        return toy

    return make


def run(toy: Toy, recorder: Recorder) -> list[StageResult]:
    with Coordinator(toy.root, recorder) as coordinator:
        execution = Execution(coordinator, toy.plan(), 1, toy.events.append)
        results = in_order.run(execution)
        coordinator.close_record(results, complete=True)
        return results


def journalled(toy: Toy) -> list[StageResult]:
    return run(toy, JournalledRun(toy.root, "language"))


def recorded(root: Path) -> dict[str, Any]:
    """All that MLflow has, by the names of the runs, without what differs from run to run."""
    client, found = MlflowClient(f"sqlite:///{root / 'mlruns/mlflow.db'}"), {}
    [experiment] = [one for one in client.search_experiments() if one.name == "language"]
    for one in client.search_runs([experiment.experiment_id]):
        run_id = one.info.run_id
        files = sorted(path for path in (root / "mlruns/artifacts" / run_id).rglob("*") if path.is_file())
        assert one.info.start_time <= one.info.end_time
        found[one.info.run_name] = {
            "status": one.info.status,
            "user": one.info.user_id,
            "files": {str(file.relative_to(root)).replace(run_id, "RUN"): file.read_text() for file in files},
            "place": one.info.artifact_uri.replace(str(root), "").replace(run_id, "RUN"),
            "params": one.data.params,
            "metrics": {
                key: [(point.step, point.value) for point in client.get_metric_history(run_id, key)]
                for key in one.data.metrics
                if not key.startswith("system/")
            },
            "measured": [key for key in one.data.metrics if key.startswith("system/")],
            "tags": {key: value for key, value in one.data.tags.items() if not key.startswith(OF_THE_RUN)},
            "sealed": "posttrain.seal" in one.data.tags,
            "inputs": sorted((one.dataset.name, one.dataset.digest) for one in one.inputs.dataset_inputs),
        }
    return found


@pytest.mark.parametrize("recorder", ["journalled", "itself"])
def test_a_stage_computes_with_the_products_that_its_run_is_recorded_with(
    tmp_path: Path, empty_mlflow: Path, monkeypatch: pytest.MonkeyPatch, recorder: str
) -> None:
    """Whatever this machine would choose by the time it starts."""
    (tmp_path / "mlruns").mkdir()
    shutil.copy(empty_mlflow, tmp_path / "mlruns/mlflow.db")
    monkeypatch.setattr(journalled_run, "LATER", 3600.0)  # nothing is recorded
    monkeypatch.setenv("POSTTRAIN_PRODUCTS", "onednn")
    recording: Recorder = (
        JournalledRun(tmp_path, "language") if recorder == "journalled" else FlowRecorder(tmp_path, "language")
    )
    monkeypatch.setenv("POSTTRAIN_PRODUCTS", "torch")
    run_id = recording.start("a", {"cmd": "python -m tasks.a", "deps": [], "outs": []}, "never run")
    assert recording.variables(run_id, tmp_path / "mlruns/logs/a.log")["POSTTRAIN_PRODUCTS"] == "onednn"


@pytest.mark.slow
def test_a_journal_makes_the_records_that_the_run_itself_would_have_made(varied: Any) -> None:
    toy, other = varied("journalled"), varied("itself")
    began = time.time()
    states = [(result.stage, result.state) for result in journalled(toy)]
    ended = time.time()
    assert states == [("a", "ran"), ("b", "ran"), ("bad", "failed"), ("lost", "skipped")]
    replay_process.wait_for_recorded_runs(toy.root)
    results = run(other, FlowRecorder(other.root, "language"))
    assert [(result.stage, result.state) for result in results] == states
    found, expected = recorded(toy.root), recorded(other.root)
    assert found.keys() == expected.keys() == {"language", "a", "b", "bad"}
    for name in expected:
        assert found[name] == expected[name], name
    assert [line.partition(": ")[2] for line in replay_process.pop_recording_problems(toy.root)] == [
        next(result.unrecorded for result in results if result.unrecorded)
    ]
    assert not journal.list_journals(toy.root)

    with closing(sqlite3.connect(toy.root / "mlruns/mlflow.db")) as history:
        times = history.execute("select start_time / 1000, (end_time - 1) / 1000 from runs").fetchall()
    assert len(times) == 4
    for first, last in times:
        assert int(began) <= int(first) <= int(last) <= ended, "the times are those of the run, not of its recording"


@pytest.mark.slow
def test_the_process_that_records_may_be_killed_at_any_time(varied: Any) -> None:
    toy, other = varied("killed"), varied("itself")
    journalled(toy)
    draw = random.Random(int(os.environ.get("SEED_OF_TESTS", 0)))
    for _ in range(3):
        replay_process.start_recorder_unless_running(toy.root)
        time.sleep(draw.uniform(0.5, 5))
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if str(toy.root).encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)
            except OSError:
                continue
    replay_process.wait_for_recorded_runs(toy.root)
    run(other, FlowRecorder(other.root, "language"))
    assert recorded(toy.root) == recorded(other.root)


@pytest.mark.slow
def test_a_command_that_knows_mlflow_finds_its_run_and_the_next_run_comes_at_once(make_toy: Any) -> None:
    toy: Toy = make_toy("toy")
    toy.write("foreign.py", FOREIGN)
    toy.stage("a", cmd="python foreign.py")
    for value in (1, 2):  # the database is made meanwhile; then it is there, while the first run may still be recorded
        toy.set(a=value)
        [result] = journalled(toy)
        assert result.state == "ran", result.reason
        assert result.mlflow_run_id
        assert mlflow_run_lookup.get_finished_run(toy.root, result.mlflow_run_id).id, (
            "what reads the records waits for them"
        )
        assert mlflow_run_lookup.load_run_metrics(toy.root, [result.mlflow_run_id])[result.mlflow_run_id]["mine"] == 2.0


@pytest.mark.slow
def test_what_cannot_be_recorded_is_told_by_the_next_run(tmp_path: Path) -> None:
    root = make_pipeline(tmp_path / "pipeline")
    assert posttrain(root, "run", "sft").returncode == 0
    with (root / journal.FOLDER / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # no process records meanwhile
        assert posttrain(root, "run", "sft", "--set", "sft.beta=0.2", settled=False).returncode == 0
        (root / "mlruns/mlflow.db").write_text("no database")
    with pytest.raises(
        PlanError, match=r"^mlruns/mlflow\.db: file is not a database.*; 2 records wait in mlruns/journals"
    ):
        replay_process.wait_for_recorded_runs(root)
    told = posttrain(root, "run", "problems", settled=False)
    assert "incomplete: mlruns/mlflow.db: " in told.stdout, told.stdout + told.stderr
    (root / "mlruns/mlflow.db").unlink()
    replay_process.wait_for_recorded_runs(root)
    assert "sft ran, 1 up to date" in posttrain(root, "runs").stdout, "nothing was lost but the history before"


@pytest.mark.slow
def test_whoever_asks_for_records_waits_until_they_are_whole(tmp_path: Path) -> None:
    root = make_pipeline(tmp_path / "pipeline")
    for beta in ("0.2", "0.3"):
        done = posttrain(root, "run", "sft", "--set", f"sft.beta={beta}", settled=False)
        assert done.returncode == 0, done.stdout + done.stderr
    shown = json.loads(posttrain(root, "runs", "--json").stdout)
    assert len(shown) == 2
    assert "sft.beta 0.2 -> 0.3" in str(shown[0])
