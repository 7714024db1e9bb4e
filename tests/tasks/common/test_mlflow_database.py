"""MLflow's database: it is whole or absent after any stop, and any other file in its place gives a one-line error."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tasks.common import mlflow_database
from tasks.common.mlflow_database import ARTIFACTS, DATABASE, DatabaseError

ROOT = Path(__file__).parents[3]
MAKE = [
    sys.executable,
    "-c",
    "from pathlib import Path; from tasks.common import mlflow_database; mlflow_database.open_client(Path())",
]


@pytest.fixture
def copied(tmp_path: Path, empty_mlflow: Path) -> Path:
    """A repository whose database has no run."""
    (tmp_path / "mlruns").mkdir()
    shutil.copyfile(empty_mlflow, tmp_path / DATABASE)
    return tmp_path


def finished(root: Path) -> str:
    """A finished run in the database."""
    client = mlflow_database.open_client(root)
    found = client.get_experiment_by_name("language")
    location = str((root / ARTIFACTS).absolute())
    experiment = found.experiment_id if found else client.create_experiment("language", artifact_location=location)
    run_id = client.create_run(experiment).info.run_id
    client.set_terminated(run_id)
    return run_id


def execute(root: Path, *statements: str) -> None:
    with closing(sqlite3.connect(root / DATABASE)) as records:
        for statement in statements:
            records.execute(statement)
        records.commit()


@pytest.mark.parametrize("seed", range(3))
def test_after_a_kill_while_it_is_made_the_next_one_makes_it(tmp_path: Path, seed: int) -> None:
    """After such a kill MLflow itself always fails with `table already exists`."""
    making = subprocess.Popen(MAKE, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    new = (tmp_path / DATABASE).with_name("mlflow.db.new")
    while not new.exists():
        assert making.poll() is None
        time.sleep(0.001)
    time.sleep(random.Random(seed).uniform(0, 0.5))
    making.send_signal(signal.SIGKILL)
    making.wait()
    assert finished(tmp_path)
    assert [file.name for file in (tmp_path / "mlruns").glob("mlflow.db*")] == ["mlflow.db"]


def test_two_at_once_make_one(tmp_path: Path) -> None:
    both = [subprocess.Popen(MAKE, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}) for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    assert finished(tmp_path)


@pytest.mark.parametrize("half", ["", "alembic_version", "runs"])
def test_one_that_an_earlier_version_left_half_made_is_made_anew(copied: Path, half: str) -> None:
    """The file is empty, or lacks its version or a table."""
    if half:
        execute(copied, "PRAGMA user_version = 0", f"DROP TABLE {half}")
    else:
        (copied / DATABASE).write_bytes(b"")
    assert finished(copied)


def test_one_with_runs_of_an_earlier_version_is_kept(copied: Path) -> None:
    run_id = finished(copied)
    execute(copied, "PRAGMA user_version = 0")
    assert mlflow_database.open_client(copied).get_run(run_id).info.status == "FINISHED"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as records:
        records.execute("CREATE TABLE recipes (name TEXT)")


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def of_the_future(path: Path) -> None:
    execute(path.parent.parent, "UPDATE alembic_version SET version_num = 'ffffffffffff'")


BROKEN: dict[Callable[[Path], None], str] = {
    cut: "database disk image is malformed; if it is damaged, delete mlruns/: only the history is lost$",
    emptied: "file is not a database; if it is damaged, delete mlruns/: only the history is lost$",
    foreign: "this is not MLflow's database; move it away$",
    a_folder: "unable to open database file$",
    of_the_future: "Detected out-of-date database schema .*",
}


@pytest.mark.parametrize("breaks", BROKEN, ids=lambda breaks: breaks.__name__)
def test_whatever_else_stands_there_is_one_line_and_stays(copied: Path, breaks: Callable[[Path], None]) -> None:
    if breaks is not of_the_future:  # MLflow checks it once in each process
        finished(copied)
    breaks(copied / DATABASE)
    before = b"" if breaks is a_folder else (copied / DATABASE).read_bytes()
    with pytest.raises(DatabaseError, match=rf"^mlruns/mlflow.db: {BROKEN[breaks]}") as caught:
        mlflow_database.open_client(copied)
    assert "\n" not in str(caught.value)
    assert (copied / DATABASE).is_dir() or (copied / DATABASE).read_bytes() == before


def test_one_that_cannot_be_written_is_known_before_anything_runs(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"{(copied / DATABASE).as_uri()}?mode=ro"  # as on a read-only disk, or without permission
    monkeypatch.setattr(mlflow_database, "connect", lambda _: sqlite3.connect(uri, uri=True))
    with pytest.raises(DatabaseError, match=r"^mlruns/mlflow.db: attempt to write a readonly database$"):
        mlflow_database.open_client(copied)


def test_a_moved_repository_keeps_its_artifacts_beside_it(tmp_path: Path, empty_mlflow: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new place"
    (old / "mlruns").mkdir(parents=True)
    shutil.copyfile(empty_mlflow, old / DATABASE)
    run_id = finished(old)
    client: MlflowClient = mlflow_database.open_client(old)
    client.log_text(run_id, "before", "note.txt")
    shutil.copytree(old, new)
    shutil.rmtree(old)
    client = mlflow_database.open_client(new)
    assert client.get_experiment_by_name("language").artifact_location == str(new / ARTIFACTS)
    assert client.get_run(run_id).info.artifact_uri == str(new / ARTIFACTS / run_id / "artifacts")
    later = finished(new)
    client.log_text(later, "after", "more.txt")
    assert (new / ARTIFACTS / later / "artifacts/more.txt").read_text() == "after"
    assert not old.exists()


def test_a_path_may_have_quotes_but_no_question_mark(tmp_path: Path) -> None:
    """MLflow inserts one path into SQL unquoted, and reads what follows a question mark as options."""
    odd = tmp_path / 'it\'s "my" #1 ü 100%'
    odd.mkdir()
    assert finished(odd)
    asked = tmp_path / "why?"
    asked.mkdir()
    with pytest.raises(
        DatabaseError, match=r"^mlruns/mlflow.db: the repository's path has a '\?', which MLflow takes for"
    ):
        mlflow_database.open_client(asked)
    assert not any(asked.iterdir())
    assert not (tmp_path / "why").exists()
