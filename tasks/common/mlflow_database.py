"""MLflow's database of this repository: it is made whole or not at all, and checked before anything is written to it.

Where MLFLOW_TRACKING_URI names a tracking server or another database, that is opened instead. The flows import this
module too, so that `posttrain run` and plain `dvc repro` make and use the same database.
"""

import fcntl
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.common import mlflow_address, mlflow_shared
from tasks.common.mlflow_address import AddressError

if TYPE_CHECKING:
    from mlflow import MlflowClient

DATABASE = mlflow_address.OWN
ARTIFACTS = Path("mlruns/artifacts")
CLONE_TAG = "posttrain.clone"
WAIT_SECONDS = 30.0  # for another process that is writing
WHOLE = 1  # SQLite's user_version of a database that was made here to the end
INSERT_RUN = (
    "INSERT OR IGNORE INTO runs (run_uuid, name, source_type, source_name, entry_point_name, user_id, status, "
    "start_time, "
    "source_version, lifecycle_stage, artifact_uri, experiment_id) SELECT ?, ?, 'UNKNOWN', '', '', ?, 'RUNNING', "
    "?, '', 'active', "
    "artifact_location || ?, experiment_id FROM experiments WHERE name = ?"
)
RECORDS = {  # table -> a row that somebody made
    "experiments": "SELECT 1 FROM experiments WHERE name != 'Default'",
    "runs": "SELECT 1 FROM runs",
    "registered_models": "SELECT 1 FROM registered_models",
}
INSERT_NAME = (
    "INSERT OR IGNORE INTO tags (key, value, run_uuid) SELECT 'mlflow.runName', ?, run_uuid FROM runs "
    "WHERE run_uuid = ?"
)


class DatabaseError(Exception):
    """MLflow's database cannot be read or written; one line for a person."""


def get_tracking_address(root: Path) -> str:
    """MLflow's address of its records: those of the repository at `root`, unless MLFLOW_TRACKING_URI says otherwise."""
    return mlflow_address.find_shared_address(root) or f"sqlite:///{root.absolute() / DATABASE}"


def open_or_create_records_client(root: Path) -> "MlflowClient":
    """An MlflowClient of the database, which is made if there is none.

    DatabaseError where it is not MLflow's, is damaged, or is of another version of MLflow: none is ever upgraded. An
    empty one that an earlier version left half made when it was killed is made anew; now it is made beside and renamed.
    """
    _silence_mlflow_logging()
    with raise_as_database_error():
        elsewhere = mlflow_address.find_shared_address(root)
        if elsewhere is not None:
            return mlflow_shared.open_or_create_client(elsewhere)
    prepare_database(root)
    with raise_as_database_error():
        from mlflow import MlflowClient

        return MlflowClient(get_tracking_address(root), registry_uri=get_tracking_address(root))


def find_shared_client(root: Path) -> "MlflowClient | None":
    """An MlflowClient of the records that MLFLOW_TRACKING_URI names elsewhere; None where there are none yet, and none
    are made.
    """
    _silence_mlflow_logging()
    with raise_as_database_error():
        elsewhere = mlflow_address.find_shared_address(root)
        return None if elsewhere is None else mlflow_shared.find_existing_client(elsewhere)


def check_and_repair_records(root: Path) -> None:
    """DatabaseError where the records cannot be opened by the installed MLflow as they are. Nothing is made."""
    with raise_as_database_error():
        elsewhere = mlflow_address.find_shared_address(root)
    if elsewhere is None:
        prepare_database(root, make=False)
    else:
        find_shared_client(root)


def get_or_create_experiment(client: "MlflowClient", root: Path, name: str) -> str:
    """The id of the experiment of a flow, which is made if there is none; its files are in ARTIFACTS, or where a shared
    MLflow keeps them.
    """
    elsewhere = mlflow_address.find_shared_address(root)
    artifacts = (root / ARTIFACTS).absolute()
    if elsewhere is not None:
        return mlflow_shared.get_or_create_shared_experiment(client, elsewhere, artifacts, name)
    existing = client.get_experiment_by_name(name)
    tags = mlflow_shared.EXPERIMENT
    identity: str = (
        existing.experiment_id
        if existing
        else client.create_experiment(name, artifact_location=str(artifacts), tags=tags)
    )
    return identity


def make_clone_tags(root: Path) -> dict[str, str]:
    """The tags of this clone's runs: in a shared MLflow they say whose a run is."""
    return {CLONE_TAG: mlflow_address.load_or_create_clone_id(root)} if mlflow_address.find_shared_address(root) else {}


def prepare_database(root: Path, make: bool = True) -> None:
    """Make the database if there is none and `make`, and look at it, as `open_or_create_records_client` does; imports
    MLflow only to make it.
    """
    if "?" in str(root.absolute()):
        raise DatabaseError(
            f"{DATABASE}: the repository's path has a '?', which MLflow takes for the end of it; move it"
        )
    with raise_as_database_error(), _hold_database_lock(root):
        path = root / DATABASE
        if path.is_file() and _is_half_made(path):
            path.unlink()
        if not path.exists():
            if not make:
                return
            _create_database(path)
        _check_and_repair_database(path, (root / ARTIFACTS).absolute())


def insert_run(root: Path, experiment: str, run_id: str, name: str, user: str, started: int) -> bool:
    """Make a run with this id, as MLflow's `create_run` makes one with an id of its own; nothing where there is one.

    `experiment` is a name and `started` in milliseconds. False where there is no database or no such experiment yet.
    """
    if not (root / DATABASE).exists():
        return False
    values = (run_id, name, user, started, f"/{run_id}/artifacts", experiment)
    with raise_as_database_error(), closing(connect_database(root)) as database:
        if not {"experiments", "runs"} <= _list_tables(database):
            return False
        database.execute(INSERT_RUN, values)
        database.execute(INSERT_NAME, (name, run_id))
        database.commit()
        return database.execute("SELECT 1 FROM runs WHERE run_uuid = ?", [run_id]).fetchone() is not None


@contextmanager
def raise_as_database_error() -> Iterator[None]:
    """Turn whatever MLflow, its SQL, the network or the disk raises into a DatabaseError of one line."""
    try:
        yield
    except DatabaseError:
        raise
    except Exception as error:
        cause = getattr(error, "orig", None) or error  # SQLAlchemy's own error shows the whole statement
        message = next(iter(str(cause).splitlines()), type(cause).__name__)
        if isinstance(error, AddressError):
            raise DatabaseError(message) from None
        damaged = type(cause) is sqlite3.DatabaseError and mlflow_address.describe_records_address() == str(DATABASE)
        hint = "; if it is damaged, delete mlruns/: only the history is lost" if damaged else ""
        shown_cause = (
            error if mlflow_address.describe_records_address() == str(DATABASE) else None
        )  # another's text may hold a password
        raise DatabaseError(
            f"{mlflow_address.describe_records_address()}: {mlflow_address.redact_secrets(message)[:300]}{hint}"
        ) from shown_cause


def connect_database(root: Path) -> sqlite3.Connection:
    """A connection to the database, which must exist; the caller closes it."""
    path = (root / DATABASE).absolute()
    return sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=WAIT_SECONDS)


@contextmanager
def _hold_database_lock(root: Path) -> Iterator[None]:
    """One process at a time; the lock ends with the process."""
    folder = root / DATABASE.parent
    folder.mkdir(exist_ok=True)
    with (folder / "making.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _create_database(path: Path) -> None:
    """Make the database beside its place and rename it: a kill on the way leaves nothing that counts."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    _silence_mlflow_logging()
    for left in path.parent.glob(f"{path.name}.new*"):
        left.unlink()
    new = path.with_name(f"{path.name}.new")
    # its "Default" experiment, which nothing here uses, gets a place without quotes: MLflow writes it into SQL as it is
    SqlAlchemyStore(f"sqlite:///{new.absolute()}", "/mlruns").engine.dispose()
    with closing(sqlite3.connect(new)) as database:
        database.execute(f"PRAGMA user_version = {WHOLE}")
    new.rename(path)


def _silence_mlflow_logging() -> None:
    """Turn off MLflow's remarks about making tables; importing it turns them on."""
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)


def _is_half_made(path: Path) -> bool:
    """Whether this is MLflow's database, or an empty one, that was not made to the end, and has no records that could
    be lost.
    """
    with closing(sqlite3.connect(path, timeout=WAIT_SECONDS)) as database:
        if database.execute("PRAGMA user_version").fetchone()[0] == WHOLE:
            return False
        tables = _list_tables(database)
        if tables and "experiments" not in tables:
            return False
        held = [query for table, query in RECORDS.items() if table in tables]
        return not any(database.execute(query).fetchone() for query in held)


def _check_and_repair_database(path: Path, artifacts: Path) -> None:
    """Refuse a database that is not MLflow's, is cut off or cannot be written to; correct its paths if the repository
    was moved.
    """
    with closing(connect_database(path.parent.parent)) as database:
        if not {"experiments", "runs", "tags", "params", "alembic_version"} <= _list_tables(database):
            raise DatabaseError(f"{DATABASE}: this is not MLflow's database; move it away")
        versions = [number for (number,) in database.execute(mlflow_shared.VERSION)]
        mlflow_shared.check_version(versions, f"sqlite:///{DATABASE}")
        database.execute(
            "UPDATE runs SET status = status WHERE 0"
        )  # fails now where nothing can be written, not in hours
        moved = "SELECT artifact_location FROM experiments WHERE artifact_location LIKE ? AND artifact_location != ?"
        for (old,) in database.execute(moved, [f"%/{ARTIFACTS}", str(artifacts)]).fetchall():
            database.execute(
                "UPDATE experiments SET artifact_location = ? WHERE artifact_location = ?", [str(artifacts), old]
            )
            parts = [str(artifacts), len(old) + 1, len(old) + 1, f"{old}/"]
            database.execute(
                "UPDATE runs SET artifact_uri = ? || substr(artifact_uri, ?) WHERE substr(artifact_uri, 1, ?) = ?",
                parts,
            )
        database.commit()


def _list_tables(database: sqlite3.Connection) -> set[str]:
    return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
