"""MLflow's database: it is whole or absent after any stop, and any other file in its place gives a one-line error."""

import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from mlflow import MlflowClient

from tasks.common import mlflow_database
from tasks.common.mlflow_database import ARTIFACTS, DATABASE, DatabaseError
from tests.tasks import forks


@pytest.fixture
def copied(tmp_path: Path, empty_mlflow: Path) -> Path:
    """A repository whose database has no run."""
    (tmp_path / "mlruns").mkdir()
    shutil.copyfile(empty_mlflow, tmp_path / DATABASE)
    return tmp_path


def finished(root: Path) -> str:
    """A finished run in the database."""
    client = mlflow_database.open_or_create_records_client(root)
    found = client.get_experiment_by_name("language")
    location = str((root / ARTIFACTS).absolute())
    experiment = found.experiment_id if found else client.create_experiment("language", artifact_location=location)
    run_id = client.create_run(experiment).info.run_id
    client.set_terminated(run_id)
    return run_id


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as records:
        for statement in statements:
            records.execute(statement)
        records.commit()


@pytest.fixture
def store(empty_mlflow: Path) -> type:
    """In place of MLflow's own store, which takes seconds to make a database: it copies one, and says so in a file
    beside it.
    """

    class Store:
        engine = SimpleNamespace(dispose=lambda: None)
        pause = 0.0

        def __init__(self, address: str, artifacts: str) -> None:
            path = Path(address.removeprefix("sqlite:///"))
            with (path.parent / "makings").open("a") as file:
                file.write("one\n")
            assert artifacts == "/mlruns"
            assert not path.exists(), "MLflow itself would fail: table already exists"
            shutil.copyfile(empty_mlflow, path)
            execute(path, "PRAGMA user_version = 0")
            time.sleep(self.pause)

    return Store


def killed(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("half", ["tables", "version"])
def test_after_a_kill_while_it_is_made_the_next_one_makes_it(
    tmp_path: Path, half: str, store: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed within MLflow's own making of tables, or just before the database gets its name.

    After such a kill MLflow itself always fails with `table already exists`.
    """
    with monkeypatch.context() as patched:
        if half == "version":
            patched.setattr("mlflow.store.tracking.sqlalchemy_store.SqlAlchemyStore", store)
        patched.setattr("alembic.command.upgrade", killed)
        patched.setattr(Path, "rename", killed)
        assert forks.ended(forks.start(lambda: mlflow_database.prepare_database(tmp_path))) == -signal.SIGKILL
    assert not (tmp_path / DATABASE).exists()
    with closing(sqlite3.connect(tmp_path / "mlruns/mlflow.db.new")) as records:
        assert records.execute("SELECT name FROM sqlite_master WHERE name = 'runs'").fetchall(), "half made"
    with monkeypatch.context() as patched:
        patched.setattr("mlflow.store.tracking.sqlalchemy_store.SqlAlchemyStore", store)
        mlflow_database.prepare_database(tmp_path)
    assert [file.name for file in (tmp_path / "mlruns").glob("mlflow.db*")] == ["mlflow.db"]
    assert finished(tmp_path)


def test_two_at_once_make_one(tmp_path: Path, store: type, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("mlflow.store.tracking.sqlalchemy_store.SqlAlchemyStore", store)
        patched.setattr(store, "pause", 0.3)  # in which the other one would be seen to make it too
        both = [forks.start(lambda: mlflow_database.prepare_database(tmp_path)) for _ in range(2)]
        assert [forks.ended(child) for child in both] == [0, 0]
    assert (tmp_path / "mlruns/makings").read_text() == "one\n"
    assert finished(tmp_path)


@pytest.mark.parametrize("half", ["", "alembic_version", "runs"])
def test_one_that_an_earlier_version_left_half_made_is_made_anew(
    copied: Path, half: str, store: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is empty, or lacks its version or a table."""
    if half:
        execute(copied / DATABASE, "PRAGMA user_version = 0", f"DROP TABLE {half}")
    else:
        (copied / DATABASE).write_bytes(b"")
    with monkeypatch.context() as patched:
        patched.setattr("mlflow.store.tracking.sqlalchemy_store.SqlAlchemyStore", store)
        mlflow_database.prepare_database(copied)
    assert finished(copied)


def test_one_with_runs_of_an_earlier_version_is_kept(copied: Path) -> None:
    run_id = finished(copied)
    execute(copied / DATABASE, "PRAGMA user_version = 0")
    assert mlflow_database.open_or_create_records_client(copied).get_run(run_id).info.status == "FINISHED"


@pytest.mark.parametrize("held", ["experiment", "run", "model"])
def test_one_that_somebody_else_has_made_is_no_half_made_one(copied: Path, held: str) -> None:
    """MLflow's own server or client made it, so that it has no mark of ours, and nothing in it has finished."""
    client = mlflow_database.open_or_create_records_client(copied)
    if held == "model":
        client.create_registered_model("mine")
    else:
        experiment = "0" if held == "run" else client.create_experiment("team")
        _ = held == "run" and client.create_run(experiment)
    execute(copied / DATABASE, "PRAGMA user_version = 0")
    before = (copied / DATABASE).read_bytes()
    mlflow_database.prepare_database(copied)
    assert (copied / DATABASE).read_bytes() == before


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
    execute(path, "UPDATE alembic_version SET version_num = 'ffffffffffff'")


BROKEN: dict[Callable[[Path], None], str] = {
    cut: "database disk image is malformed; if it is damaged, delete mlruns/: only the history is lost$",
    emptied: "file is not a database; if it is damaged, delete mlruns/: only the history is lost$",
    foreign: "this is not MLflow's database; move it away$",
    a_folder: "unable to open database file$",
    of_the_future: r"its tables \(version ffffffffffff\) are not known to MLflow .*",
}


@pytest.mark.parametrize("breaks", BROKEN, ids=lambda breaks: breaks.__name__)
def test_whatever_else_stands_there_is_one_line_and_stays(copied: Path, breaks: Callable[[Path], None]) -> None:
    finished(copied)
    breaks(copied / DATABASE)
    before = b"" if breaks is a_folder else (copied / DATABASE).read_bytes()
    with pytest.raises(DatabaseError, match=rf"^mlruns/mlflow.db: {BROKEN[breaks]}") as caught:
        mlflow_database.open_or_create_records_client(copied)
    assert "\n" not in str(caught.value)
    assert (copied / DATABASE).is_dir() or (copied / DATABASE).read_bytes() == before


def test_one_that_cannot_be_written_is_known_before_anything_runs(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"{(copied / DATABASE).as_uri()}?mode=ro"  # as on a read-only disk, or without permission
    monkeypatch.setattr(mlflow_database, "connect_database", lambda _: sqlite3.connect(uri, uri=True))
    with pytest.raises(DatabaseError, match=r"^mlruns/mlflow.db: attempt to write a readonly database$"):
        mlflow_database.open_or_create_records_client(copied)


def test_a_moved_repository_keeps_its_artifacts_beside_it(tmp_path: Path, empty_mlflow: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new place"
    (old / "mlruns").mkdir(parents=True)
    shutil.copyfile(empty_mlflow, old / DATABASE)
    run_id = finished(old)
    client: MlflowClient = mlflow_database.open_or_create_records_client(old)
    client.log_text(run_id, "before", "note.txt")
    shutil.copytree(old, new)
    shutil.rmtree(old)
    client = mlflow_database.open_or_create_records_client(new)
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
        mlflow_database.open_or_create_records_client(asked)
    assert not any(asked.iterdir())
    assert not (tmp_path / "why").exists()
