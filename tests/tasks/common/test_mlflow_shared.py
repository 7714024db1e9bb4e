"""A shared MLflow that is not there, or is something else: one line, at once, and no secret in it."""

import shutil
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.store.db import utils

from flows.engine import mlflow_run_lookup
from tasks.common import mlflow_address, mlflow_database, mlflow_shared, tracking
from tasks.common.mlflow_database import DatabaseError
from tests.tasks.common import older_mlflow


class Answer(BaseHTTPRequestHandler):
    status, text = 200, "{}"

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.text.encode())

    def log_message(self, *_: object) -> None:
        """Silence."""


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server, with a made-up user, that answers every question with Answer.status and Answer.text."""
    for name in mlflow_shared.PATIENCE:
        monkeypatch.setenv(name, mlflow_shared.PATIENCE[name])  # they are set for the process: put back at the end
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield f"http://somebody:made-up-word@127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (
            401,
            "no",
            "it asks for a user: set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN",
        ),
        (403, "made-up-word may not", r"it refuses this user \(status 403: \*\*\* may not\)"),
        (404, "<html>", r"expected MLflow's tracking server \(status 404: <html>\)"),
        (500, "", r"expected MLflow's tracking server \(status 500\)"),
        (200, "<html>welcome</html>", "what answers there is not MLflow's tracking server"),
    ],
)
def test_a_server_that_refuses_or_is_another_is_one_line(
    answering: str, status: int, text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Answer, "status", status)
    monkeypatch.setattr(Answer, "text", text)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", answering)
    began = time.monotonic()
    with pytest.raises(DatabaseError, match=rf"^http://127\.0\.0\.1:\d+: {said}") as caught:
        mlflow_database.open_or_create_records_client(tmp_path)
    assert time.monotonic() - began < 60, "MLflow itself tries for minutes"
    assert "made-up-word" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert list(tmp_path.iterdir()) == []


def test_one_that_answers_is_asked_once(answering: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", answering)
    client = mlflow_database.open_or_create_records_client(tmp_path)
    monkeypatch.setattr(Answer, "status", 500)
    assert mlflow_database.open_or_create_records_client(tmp_path) is client


def test_an_address_where_nothing_listens_is_known_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://somebody:made-up-word@127.0.0.1:9")
    began = time.monotonic()
    with pytest.raises(
        DatabaseError, match=r"^http://127\.0\.0\.1:9: cannot be reached: .*Connection refused$"
    ) as caught:
        mlflow_database.open_or_create_records_client(tmp_path)
    assert time.monotonic() - began < 60
    assert "made-up-word" not in str(caught.value)


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/none/of.db")
    with pytest.raises(DatabaseError, match=r"^sqlite:///.*/none/of\.db: its folder does not exist$"):
        mlflow_database.open_or_create_records_client(tmp_path)


def test_a_missing_driver_is_named_with_what_brings_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://somebody:made-up-word@127.0.0.1:9/runs")
    with pytest.raises(
        DatabaseError, match=r"^postgresql://127\.0\.0\.1:9/runs: .*pip install 'posttrain\[servers\]'$"
    ):
        mlflow_database.open_or_create_records_client(tmp_path)


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database as MLflow 2.9.2 makes one, by MLflow's own migrations up to that version."""
    place = tmp_path_factory.mktemp("older") / "team.db"
    older_mlflow.make(f"sqlite:///{place}")
    return place


def test_the_version_is_that_of_the_installed_mlflow() -> None:
    """Read from its files; a version of MLflow that keeps them elsewhere fails here."""
    newest, before = mlflow_shared.read_schema_versions()
    assert newest == utils._get_latest_schema_revision()
    assert older_mlflow.VERSION in before
    assert newest not in before


@pytest.mark.parametrize(
    "ask",
    [
        mlflow_database.open_or_create_records_client,
        mlflow_database.find_shared_client,
        mlflow_database.check_and_repair_records,
    ],
)
def test_a_database_of_an_older_mlflow_is_refused_and_stays_as_it_is(
    ask: Callable[[Path], object], older: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow itself upgrades it as it opens it, and MLflow 2.9.2 cannot open it any more."""
    place = tmp_path / "team" / "team.db"
    place.parent.mkdir()
    shutil.copyfile(older, place)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place}")
    with pytest.raises(
        DatabaseError, match=r"team\.db: its tables are of an older MLflow \(version acf3f17fdcc7; "
    ) as caught:
        ask(tmp_path)
    assert "\n" not in str(caught.value)
    assert f"mlflow db upgrade sqlite:///{place}" in str(caught.value)
    assert place.read_bytes() == older.read_bytes()
    assert {file.name for file in place.parent.iterdir()} <= {"team.db", "team.db.lock"}


def newer(place: Path) -> None:
    with closing(sqlite3.connect(place)) as records, records:
        records.execute("UPDATE alembic_version SET version_num = '0123456789ab'")


def half_made(place: Path) -> None:
    with closing(sqlite3.connect(place)) as records, records:
        records.execute("DELETE FROM alembic_version")


def of_another_program(place: Path) -> None:
    place.unlink()
    with closing(sqlite3.connect(place)) as records, records:
        records.execute("CREATE TABLE recipes (name TEXT)")


def of_another_program_with_alembic(place: Path) -> None:
    of_another_program(place)
    with closing(sqlite3.connect(place)) as records, records:
        records.execute("CREATE TABLE alembic_version (version_num TEXT)")
        records.execute("INSERT INTO alembic_version VALUES ('91cd9e7ae4f5')")


def no_database(place: Path) -> None:
    place.write_text("notes of mine")


REFUSED = {
    newer: "its tables .version 0123456789ab. are not known to MLflow",
    half_made: "this is not MLflow's database, or it was not made to its end",
    of_another_program: "this is not MLflow's database",
    of_another_program_with_alembic: "its tables .version 91cd9e7ae4f5. are not known to MLflow",
    no_database: "file is not a database",
}


@pytest.mark.parametrize("change", REFUSED, ids=lambda change: change.__name__)
@pytest.mark.parametrize("ask", [mlflow_database.open_or_create_records_client, mlflow_database.find_shared_client])
def test_what_is_not_the_installed_mlflow_s_is_one_line_and_stays(
    ask: Callable[[Path], object],
    change: Callable[[Path], None],
    tmp_path: Path,
    empty_mlflow: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = tmp_path / "other.db"
    shutil.copyfile(empty_mlflow, place)
    change(place)
    before = place.read_bytes()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place}")
    with pytest.raises(DatabaseError, match=rf"^sqlite:///.*other\.db: {REFUSED[change]}") as caught:
        ask(tmp_path)
    assert "\n" not in str(caught.value)
    assert place.read_bytes() == before


@pytest.mark.parametrize("empty", [False, True])
def test_a_question_makes_no_tables(empty: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "none.db"
    if empty:
        place.touch()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place}")
    with mlflow_run_lookup.open_records_reader(tmp_path) as records:
        assert records is None
    assert place.exists() == empty
    assert not empty or not place.read_bytes()
    assert mlflow_run_lookup.list_finished_runs(tmp_path, {"stage": "sft"}) == []


def test_a_stage_of_plain_dvc_repro_is_recorded_there(
    tmp_path: Path, empty_mlflow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, clone = tmp_path / "shared.db", tmp_path / "clone"
    place.write_bytes(empty_mlflow.read_bytes())
    clone.mkdir()
    monkeypatch.chdir(clone)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place}")
    Path("metrics.json").write_text('{"loss": 0.5}')
    with tracking.record_stage_run("language", "sft", {"epochs": 2}, Path("metrics.json")):
        pass
    client = MlflowClient(f"sqlite:///{place}")
    [run] = client.search_runs([client.get_experiment_by_name("language").experiment_id])
    assert (run.info.status, run.data.metrics, run.data.params) == ("FINISHED", {"loss": 0.5}, {"sft.epochs": "2"})
    assert run.data.tags["posttrain.clone"] == mlflow_address.load_or_create_clone_id(clone)
    assert not (clone / mlflow_database.DATABASE).exists()
