import hashlib
import json
import shutil
import time
from itertools import count
from types import SimpleNamespace

import pandas as pd
import pytest
from mlflow import MlflowClient

from tasks.common import tracking
from tasks.common.errors import WAITING


@pytest.fixture
def store(empty_mlflow, tmp_path, monkeypatch):
    """A separate MLflow store with an absolute address, since MLflow keeps a store open for each address that it has
    seen.
    """
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_RUN_ID", "POSTTRAIN_PROGRESS", "POSTTRAIN_RECORDS"):
        monkeypatch.delenv(name, raising=False)
    shutil.copy(empty_mlflow, tmp_path / "mlflow.db")
    address = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    return MlflowClient(address)


ROWS = [{"loss": 1.5, "reward": 0.0}, {"loss": 0.5, "reward": 1.0}]


def recorded(tmp_path, rows=ROWS, total=2, metrics='{"accuracy": 0.75, "pairs": {"train": 9}}'):
    with tracking.record_stage_run("language", "dpo", {"beta": 0.1, "seed": 0}, tmp_path / "dpo.json"):
        found = tracking.run_and_record_training(iter(rows), total)
        tracking.record_table(pd.DataFrame({"a": [1]}), "table.json")
        (tmp_path / "dpo.json").write_text(metrics)
    return found


def test_a_run_of_plain_dvc_repro(store, tmp_path, capsys):
    assert recorded(tmp_path) == ROWS
    [run] = store.search_runs([store.get_experiment_by_name("language").experiment_id])
    assert (run.info.run_name, run.info.status) == ("dpo", "FINISHED")
    assert run.data.params == {"dpo.beta": "0.1", "dpo.seed": "0"}
    history = store.get_metric_history(run.info.run_id, "loss")
    assert [(point.step, point.value) for point in sorted(history, key=lambda point: point.step)] == [
        (1, 1.5),
        (2, 0.5),
    ]
    assert run.data.metrics["accuracy"] == 0.75
    assert run.data.metrics["pairs/train"] == 9
    assert run.data.tags["posttrain.stage"] == "dpo"
    written = (tmp_path / "dpo.json").read_bytes()
    assert run.data.tags["posttrain.metrics_md5"] == hashlib.md5(written).hexdigest()
    assert [file.path for file in store.list_artifacts(run.info.run_id)] == ["table.json"]
    assert capsys.readouterr().err.splitlines()[-1] == "step 2/2"


@pytest.mark.parametrize("kind", ["standalone/tmpz3r", "tmpq1/project"])
def test_a_run_in_the_copy_of_an_experiment_is_recorded_where_it_began(empty_mlflow, tmp_path, monkeypatch, kind):
    """DVC deletes the folder in which `dvc exp run --temp` and `--queue` run."""
    origin = tmp_path / "origin"
    copy = origin / ".dvc/tmp/exps" / kind
    for folder in (copy, origin / "mlruns"):
        folder.mkdir(parents=True)
    shutil.copy(empty_mlflow, origin / "mlruns/mlflow.db")
    monkeypatch.chdir(copy)
    for name in ("MLFLOW_RUN_ID", "MLFLOW_TRACKING_URI", "POSTTRAIN_PROGRESS", "POSTTRAIN_RECORDS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DVC_ROOT", str(origin))
    recorded(copy)
    assert not (copy / "mlruns").exists()
    client = MlflowClient(f"sqlite:///{origin}/mlruns/mlflow.db")
    [run] = client.search_runs([client.get_experiment_by_name("language").experiment_id])
    assert run.info.artifact_uri.startswith(str(origin / "mlruns/artifacts"))


@pytest.mark.parametrize("named", ["", "elsewhere", "here"])
def test_elsewhere_a_run_is_recorded_in_its_working_folder(tmp_path, monkeypatch, named):
    """DVC sets the variable for every command, and a copy in which `posttrain verify` runs a stage is no
    experiment's.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path if named == "here" else tmp_path / named if named else ""))
    assert tracking.find_records_root() == tmp_path


def test_a_run_that_the_coordinator_owns(store, tmp_path, monkeypatch, capsys):
    """Its status and tags are the coordinator's; progress goes to its file."""
    experiment = store.create_experiment("language")
    run_id = store.create_run(experiment).info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
    monkeypatch.setenv("POSTTRAIN_PROGRESS", str(tmp_path / "progress"))
    recorded(tmp_path)
    run = store.get_run(run_id)
    assert run.info.status == "RUNNING"
    assert "posttrain.metrics_md5" not in run.data.tags
    assert run.data.metrics["loss"] == 0.5
    assert len(store.search_runs([experiment])) == 1
    lines = [json.loads(line) for line in (tmp_path / "progress").read_text().splitlines()]
    assert lines[-1] == {"step": 2, "total": 2, "measure": "reward 1"}
    assert capsys.readouterr().err == ""


def test_a_run_that_waits_for_people_has_not_failed(store, tmp_path):
    def waiting():
        yield ROWS[0]
        raise SystemExit(WAITING)

    with pytest.raises(SystemExit):
        recorded(tmp_path, waiting())
    [run] = store.search_runs([store.get_experiment_by_name("language").experiment_id])
    assert (run.info.status, run.data.tags["posttrain.waiting"]) == ("KILLED", "for people")


def test_a_run_that_fails_is_failed_and_keeps_its_rows(store, tmp_path):
    def breaking():
        yield ROWS[0]
        raise RuntimeError("no memory")

    with pytest.raises(RuntimeError, match="no memory"):
        recorded(tmp_path, breaking())
    [run] = store.search_runs([store.get_experiment_by_name("language").experiment_id])
    assert run.info.status == "FAILED"
    assert run.data.metrics == {"loss": 1.5, "reward": 0.0}
    tracking.run_and_record_training(iter(ROWS), 2)
    assert store.get_run(run.info.run_id).data.metrics == {"loss": 1.5, "reward": 0.0}, "the recorder is put away"


def test_a_resumed_run_has_all_rows_and_goes_on_counting(store, tmp_path, monkeypatch):
    monkeypatch.setenv("POSTTRAIN_PROGRESS", str(tmp_path / "progress"))
    with tracking.record_stage_run("language", "dpo", {}, tmp_path / "dpo.json"):
        assert tracking.run_and_record_training(iter([{"loss": 0.25}]), 3, earlier=ROWS) == [*ROWS, {"loss": 0.25}]
        (tmp_path / "dpo.json").write_text("{}")
    [run] = store.search_runs([store.get_experiment_by_name("language").experiment_id])
    history = store.get_metric_history(run.info.run_id, "loss")
    assert sorted((point.step, point.value) for point in history) == [(1, 1.5), (2, 0.5), (3, 0.25)]
    assert (tmp_path / "progress").read_text() == '{"step": 3, "total": 3, "measure": "loss 0.25"}\n', (
        "what is left is told of new steps only"
    )


def test_progress_of_several_trainings_is_that_of_one(store, tmp_path, monkeypatch):
    monkeypatch.setenv("POSTTRAIN_PROGRESS", str(tmp_path / "progress"))
    a_second_apart = SimpleNamespace(monotonic=count().__next__, time=time.time)
    monkeypatch.setattr(tracking, "time", a_second_apart)
    with tracking.record_stage_run("offline", "bc@graph-60", {}, tmp_path / "metrics.json"):
        for number in range(3):
            with tracking.show_progress_as_part(number, 3):
                tracking.run_and_record_training(iter(ROWS), 2)
        tracking.run_and_record_training(iter(ROWS), 2)
        (tmp_path / "metrics.json").write_text("{}")
    told = [json.loads(line) for line in (tmp_path / "progress").read_text().splitlines()]
    assert [(report["step"], report["total"]) for report in told] == [
        *((step, 6) for step in range(1, 7)),
        (1, 2),
        (2, 2),
    ]


def test_a_part_that_fails_is_over(store, tmp_path):
    with pytest.raises(RuntimeError), tracking.show_progress_as_part(1, 2):
        raise RuntimeError
    with tracking.record_stage_run("offline", "bc", {}, tmp_path / "metrics.json"):
        assert list(tracking.iterate_with_progress(iter("ab"), 2)) == ["a", "b"]
        (tmp_path / "metrics.json").write_text("{}")


def test_a_metric_s_name_may_have_what_mlflow_refuses(store, tmp_path):
    recorded(tmp_path, [{"10%BC/seed-0/loss": 1.0}], 1, metrics='{"10%BC": {"loss": 2.0}}')
    [run] = store.search_runs([store.get_experiment_by_name("language").experiment_id])
    assert run.data.metrics == {"10_BC/seed-0/loss": 1.0, "10_BC/loss": 2.0}


def test_without_a_recorder_rows_just_pass(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert tracking.run_and_record_training(iter(ROWS), 2) == ROWS
    assert list(tracking.iterate_with_progress(iter("ab"), 2)) == ["a", "b"]
    tracking.record_table(pd.DataFrame({"a": [1]}), "table.json")
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr() == ("", "")


def test_what_no_row_has_is_recorded_at_its_step(store, tmp_path):
    tracking.record_metrics({"seconds": 2.5}, 7)  # without a recorder it is passed over
    with tracking.record_stage_run("language", "dpo", {}, tmp_path / "dpo.json"):
        tracking.record_metrics({"seconds": 1.5}, 7)
        (tmp_path / "dpo.json").write_text("{}")
    [run] = store.search_runs([store.get_experiment_by_name("language").experiment_id])
    [found] = store.get_metric_history(run.info.run_id, "seconds")
    assert (found.step, found.value) == (7, 1.5)


def test_more_rows_than_one_call_takes(store, tmp_path):
    rows = [{"loss": float(number)} for number in range(tracking.BATCH + 5)]
    recorded(tmp_path, rows, len(rows))
    [run] = store.search_runs([store.get_experiment_by_name("language").experiment_id])
    assert len(store.get_metric_history(run.info.run_id, "loss")) == len(rows)


@pytest.mark.parametrize("owned", [True, False])
def test_a_stage_goes_on_when_its_record_fails(store, tmp_path, monkeypatch, capsys, owned):
    """The database vanishes during training: the stage prints one line and ends as usual."""
    if owned:
        run_id = store.create_run(store.create_experiment("language")).info.run_id
        monkeypatch.setenv("MLFLOW_RUN_ID", run_id)
    monkeypatch.setattr(tracking, "FLUSH_SECONDS", 0)

    def rows():
        yield ROWS[0]
        (tmp_path / "mlflow.db").write_bytes(b"torn" * 300)
        yield ROWS[1]

    assert recorded(tmp_path, rows()) == ROWS
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("step ")]
    assert said[-1].startswith(f"what MLflow has of this run is incomplete: sqlite:///{tmp_path}/mlflow.db: ")
    assert all(len(line) < 500 for line in said)


def test_metrics_that_could_not_be_written_are_written_with_the_next(store, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tracking, "FLUSH_SECONDS", 0)

    def rows():
        (tmp_path / "mlflow.db").rename(tmp_path / "away")
        yield ROWS[0]
        (tmp_path / "mlflow.db").unlink(missing_ok=True)
        (tmp_path / "away").rename(tmp_path / "mlflow.db")
        yield ROWS[1]

    recorded(tmp_path, rows())
    [run] = store.search_runs([store.get_experiment_by_name("language").experiment_id])
    history = store.get_metric_history(run.info.run_id, "loss")
    assert sorted((point.step, point.value) for point in history) == [(1, 1.5), (2, 0.5)]
    assert run.info.status == "FINISHED"
    assert "incomplete" not in capsys.readouterr().err


def test_a_stage_without_a_store_says_so_and_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("MLFLOW_RUN_ID", "MLFLOW_TRACKING_URI", "POSTTRAIN_PROGRESS", "POSTTRAIN_RECORDS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "mlruns").mkdir()
    (tmp_path / "mlruns/mlflow.db").write_bytes(b"torn" * 300)
    assert recorded(tmp_path) == ROWS
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "what MLflow has of this run is incomplete: mlruns/mlflow.db: file is not a database; "
        "if it is damaged, delete mlruns/: only the history is lost"
    ]
