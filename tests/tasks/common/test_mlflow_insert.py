"""A run that is made with an id of our own, against one that MLflow makes."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tasks.common import mlflow_database


@pytest.fixture
def root(empty_mlflow: Path, tmp_path: Path) -> Path:
    (tmp_path / "mlruns").mkdir()
    shutil.copy(empty_mlflow, tmp_path / "mlruns/mlflow.db")
    return tmp_path


def rows(root: Path, table: str, run_id: str) -> list[list[str]]:
    with closing(sqlite3.connect(root / "mlruns/mlflow.db")) as database:
        found = database.execute(f"select * from {table} where run_uuid = ? order by 1", [run_id]).fetchall()
    return [[str(value).replace(run_id, "RUN") for value in row] for row in found]


def test_it_is_in_every_column_what_mlflow_makes(root: Path) -> None:
    client = MlflowClient(f"sqlite:///{root}/mlruns/mlflow.db")
    experiment = mlflow_database.get_or_create_experiment(client, root, "language")
    made = client.create_run(experiment, 5, {"mlflow.user": "me"}, "sft").info.run_id
    client.delete_tag(made, "mlflow.user")
    ours = "0" * 32
    for _ in range(2):
        assert mlflow_database.insert_run(root, "language", ours, "sft", "me", 5)
    for table in ("runs", "tags"):
        assert rows(root, table, ours) == rows(root, table, made)


def test_without_a_database_or_its_experiment_nothing_is_made(root: Path) -> None:
    assert not mlflow_database.insert_run(root, "language", "0" * 32, "sft", "me", 5)
    assert not mlflow_database.insert_run(root / "none", "language", "0" * 32, "sft", "me", 5)
