"""MLflow's records that the installed MLflow cannot open as they are: a question or a run is one line, and changes
nothing.
"""

import fcntl
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from flows.engine.journals import journal, replay_process
from tasks.common.mlflow_shared import read_schema_versions
from tests import postgres
from tests.flows.toy_pipeline import call, make_pipeline, posttrain
from tests.tasks.common import older_mlflow

pytestmark = pytest.mark.slow
OLDER = "its tables are of an older MLflow (version acf3f17fdcc7; "
QUESTIONS = (["runs"], ["lineage", "problems"], ["audit"], ["compare", "now", "now"], ["verify", "problems"])


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline of which a stage has run and is on record."""
    root = make_pipeline(tmp_path_factory.mktemp("other") / "pipeline")
    done = posttrain(root, "run", "problems")
    assert done.returncode == 0, done.stdout + done.stderr
    return root


def refused(root: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """Each question of the records, and a run, is one line and leaves the parameters as they are."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    before = (root / "params.yaml").read_bytes()
    for arguments in QUESTIONS:
        code, out, error = call(root, *arguments)
        assert (code, out) == (2, ""), arguments
        assert OLDER in error
        assert error.count("\n") == 1
    done = posttrain(root, "run", "problems", "--set", "problems.beta=0.7", settled=False)
    assert done.returncode == 2, done.stdout + done.stderr
    assert OLDER in done.stderr
    assert "Traceback" not in done.stderr
    assert (root / "params.yaml").read_bytes() == before


def test_a_team_s_older_sqlite_database_stays_as_it_is(
    ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "team.db"
    older_mlflow.make(f"sqlite:///{place}")
    before = place.read_bytes()
    refused(ran, monkeypatch, f"sqlite:///{place}")
    assert place.read_bytes() == before


def test_a_team_s_older_postgresql_database_stays_as_it_is(ran: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with postgres.cluster("team", "empty") as cluster:
        older_mlflow.make(cluster.address("team"))
        before = content(cluster, "team")
        refused(ran, monkeypatch, cluster.address("team"))
        assert content(cluster, "team") == before
        monkeypatch.setenv("MLFLOW_TRACKING_URI", cluster.address("empty"))
        assert call(ran, "runs")[0] == 0
        assert cluster.sql("empty", "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'") == [
            "0"
        ]


def test_records_wait_while_the_database_cannot_be_used_and_come_when_it_can(ran: Path) -> None:
    """Nothing of a run is put aside because of its database; every command says that it waits."""
    (ran / journal.FOLDER).mkdir(exist_ok=True)
    with (ran / journal.FOLDER / "lock").open("a") as lock:  # no process records meanwhile
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = posttrain(ran, "run", "problems", "--set", "problems.beta=0.8", settled=False)
        assert done.returncode == 0, done.stdout + done.stderr
        execute(ran, "UPDATE alembic_version SET version_num = 'acf3f17fdcc7'")
    for _ in range(2):
        code, out, error = call(ran, "runs")
        assert (code, out) == (2, "")
        assert OLDER in error
        assert "2 records wait in mlruns/journals" in error
    assert f"incomplete: mlruns/mlflow.db: {OLDER}" in posttrain(ran, "run", "problems", settled=False).stdout
    params = (ran / "params.yaml").read_bytes()
    later = posttrain(ran, "run", "problems", "--set", "problems.beta=0.9", settled=False)
    assert later.returncode == 2
    assert OLDER in later.stderr
    assert (ran / "params.yaml").read_bytes() == params
    execute(ran, f"UPDATE alembic_version SET version_num = '{read_schema_versions()[0]}'")
    code, out, error = call(ran, "runs")
    assert (code, error) == (0, "")
    assert "problems.beta 0.1 -> 0.8" in out
    assert journal.list_journals(ran) == []


def test_what_could_not_be_recorded_is_said_by_every_command(ran: Path) -> None:
    aside = ran / journal.FOLDER / f"{journal.ASIDE}00000000000000000001-1"
    aside.mkdir()
    (aside / journal.FAILED).write_text("no such column")
    try:
        for _ in range(2):
            replay_process._said.clear()  # as a process of its own
            code, _, error = call(ran, "runs")
            assert code == 0
            assert error.startswith(
                f"mlruns/journals/{aside.name}: what a run left here could not be recorded (no such column)"
            )
            replay_process._said.clear()
            assert f"mlruns/journals/{aside.name}: " in call(ran, "run", "problems")[1]
    finally:
        shutil.rmtree(aside)


def content(cluster: postgres.Cluster, database: str) -> list[bytes]:
    """All of a database; pg_dump brackets it with a random word."""
    return [line for line in cluster.dump(database).splitlines() if b"restrict " not in line]


def execute(root: Path, statement: str) -> None:
    with closing(sqlite3.connect(root / "mlruns/mlflow.db")) as records, records:
        records.execute(statement)
