"""The engine's own reading of MLflow's database finds what MLflow writes; a new version that changes it fails here."""

import shutil
import sqlite3
from pathlib import Path

import pytest
from mlflow import MlflowClient

from flows.engine import mlflow_client, mlflow_run_lookup
from flows.engine.dvc_repository import PlanError


@pytest.fixture
def client(tmp_path: Path, empty_mlflow: Path) -> MlflowClient:
    (tmp_path / "mlruns").mkdir()
    shutil.copyfile(empty_mlflow, tmp_path / "mlruns/mlflow.db")
    return mlflow_client.open_mlflow_client_after_recording(tmp_path)


def made(client: MlflowClient, start: int, status: str = "FINISHED", experiment: str = "0", **tags: str) -> str:
    named = {mlflow_run_lookup.PREFIX + name: value for name, value in tags.items()}
    run_id = client.create_run(experiment, start_time=start, tags=named).info.run_id
    client.log_param(run_id, "dpo.beta", 0.1)
    client.set_terminated(run_id, status)
    return run_id


def ids(root: Path, **tags: str) -> list[str]:
    return [run.id for run in mlflow_run_lookup.list_finished_runs(root, tags)]


def test_the_newest_of_those_that_match_comes_first(tmp_path: Path, client: MlflowClient) -> None:
    old, new = made(client, 1000, key="k", outs="a b"), made(client, 2000, key="k", outs="b c")
    made(client, 3000, key="other", outs="b")
    assert ids(tmp_path, key="k") == [new, old]
    assert ids(tmp_path, key="k", outs="a b") == [old]
    index = mlflow_run_lookup.Index(tmp_path)
    assert index.makers("c") == [new]
    assert index.makers("b") == [ids(tmp_path, key="other")[0], new, old]
    assert (index.find("k", "a b"), index.find("k", "b")) == (old, None)
    assert ids(tmp_path, key="k", outs="d") == []


def test_a_run_is_as_mlflow_has_it(tmp_path: Path, client: MlflowClient) -> None:
    run_id = made(client, 1_700_000_000_000, key="k")
    run, theirs = mlflow_run_lookup.get_finished_run(tmp_path, run_id), client.get_run(run_id)
    assert [run] == mlflow_run_lookup.list_finished_runs(tmp_path, {"key": "k"})
    assert (run.id, run.tags, run.params) == (run_id, theirs.data.tags, {"dpo.beta": "0.1"})
    assert run.started.timestamp() == 1_700_000_000


def test_what_failed_or_was_deleted_does_not_count(tmp_path: Path, client: MlflowClient) -> None:
    gone = client.create_experiment("gone")
    for status in ("FAILED", "KILLED", "RUNNING"):
        made(client, 1, status, key="k")
    deleted = made(client, 2, key="k")
    made(client, 3, experiment=gone, key="k")
    assert len(ids(tmp_path, key="k")) == 2
    client.delete_run(deleted)
    client.delete_experiment(gone)
    assert ids(tmp_path, key="k") == []


def test_without_a_database_or_tables_there_are_no_runs(tmp_path: Path) -> None:
    assert ids(tmp_path) == []
    assert not any(tmp_path.iterdir())
    (tmp_path / "mlruns").mkdir()
    (tmp_path / "mlruns/mlflow.db").touch()
    assert ids(tmp_path) == []


def test_a_damaged_database_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "mlruns").mkdir()
    (tmp_path / "mlruns/mlflow.db").write_text("torn" * 300)
    with pytest.raises(PlanError, match=r"^mlruns/mlflow.db: file is not a database; if it is damaged, delete mlruns/"):
        ids(tmp_path)


def test_what_a_killed_process_left_half_written_is_rolled_back(tmp_path: Path, client: MlflowClient) -> None:
    """The next reader plays back the journal that a `kill -9` leaves, so the reader must be allowed to write."""
    run_id = made(client, 1, key="k")
    database, journal = tmp_path / "mlruns/mlflow.db", tmp_path / "mlruns/mlflow.db-journal"
    with sqlite3.connect(database) as writer:
        writer.execute("PRAGMA cache_size = 1")
        writer.execute("PRAGMA cache_spill = 1")
        writer.execute("UPDATE tags SET value = 'half'")
        for number in range(2000):
            writer.execute("INSERT INTO params VALUES (?, ?, ?)", (f"p{number}", "x" * 500, run_id))
        half, log = database.read_bytes(), journal.read_bytes()
        writer.rollback()
    database.write_bytes(half)
    journal.write_bytes(log)
    assert ids(tmp_path, key="k") == [run_id]
    assert mlflow_run_lookup.get_finished_run(tmp_path, run_id).params == {"dpo.beta": "0.1"}
