"""An MLflow that is elsewhere and that many clones may share: a tracking server, or a database that is opened directly.

It is asked once before anything is written, without MLflow's own minutes of trying again, so that a wrong address is
known at once. A database's version is read before MLflow opens it: MLflow would upgrade an older one for good, which
locks out whoever has that version.
"""

import fcntl
import os
import re
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.common import mlflow_address

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from sqlalchemy import Connection

EXPERIMENT = {
    "mlflow.experimentKind": "custom_model_development"
}  # tags: MLflow shows the pages for training, not those for prompts
ASK_SECONDS = 15  # for the first answer
PATIENCE = {  # half a minute in all where a server is away in mid-run, unless the environment says otherwise
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "5",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
}
MIGRATIONS = "store/db_migrations/versions"  # within MLflow's package, a file for each version of the tables
REVISION = re.compile(r"""^(down_revision|revision)\s*=\s*["'](\w+)["']""", re.MULTILINE)
VERSION_TABLE = "alembic_version"
VERSION = "SELECT version_num FROM alembic_version"
MAKING = 0x706F7374  # the key of PostgreSQL's lock under which the tables are made
REFUSED = {
    401: "it asks for a user: set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN",
    403: "it refuses this user",
}


_clients: "dict[str, MlflowClient]" = {}  # by address


class UnreachableError(Exception):
    """A shared MLflow does not answer, or not as the installed one; one line for a person."""


def open_or_create_client(address: str) -> "MlflowClient":
    """A client of the server or database at `address`, once it has answered; its tables are made where the database has
    none.

    UnreachableError where it does not answer as MLflow does, or has tables that are not those of the installed MLflow.
    """
    client = find_existing_client(address)
    if client is None:
        with _hold_making_lock(address):
            tables, versions = _read_tables_and_versions(address)
            if tables:  # another clone was faster
                check_version(versions, address)
            client = _make_cached_client(address)
    return client


def find_existing_client(address: str) -> "MlflowClient | None":
    """The same for a question: None where the database has no tables, which are not made."""
    if address in _clients:
        return _clients[address]
    if mlflow_address.is_server_address(address):
        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
        _check_server_answers(address)
        return _make_cached_client(address)
    tables, versions = _read_tables_and_versions(address)
    if tables and versions != [read_schema_versions()[0]]:
        with _hold_making_lock(address, make=False):  # it may be at work
            tables, versions = _read_tables_and_versions(address)
        check_version(versions, address)
    return _make_cached_client(address) if tables else None


def _make_cached_client(address: str) -> "MlflowClient":
    from mlflow import MlflowClient

    _clients[address] = client = MlflowClient(address, registry_uri=address)
    return client


def check_version(versions: Collection[str], address: str) -> None:
    """UnreachableError unless a database with these rows in its table of versions is that of the installed MLflow.

    A database that holds something else has no such row.
    """
    newest, older = read_schema_versions()
    if [*versions] == [newest]:
        return
    installed = f"MLflow {version('mlflow')}"
    shown = mlflow_address.redact_address(address)
    if not versions:
        raise UnreachableError("this is not MLflow's database, or it was not made to its end; expected one of its own")
    if not older.issuperset(versions):
        raise UnreachableError(
            f"its tables (version {', '.join(versions)}) are not known to {installed}, which has {newest}: they "
            "are those of a "
            "newer MLflow, or not MLflow's; nothing was changed"
        )
    raise UnreachableError(
        f"its tables are of an older MLflow (version {', '.join(versions)}; {installed} has {newest}), and nothing "
        "was changed; "
        f"`mlflow db upgrade {shown}` upgrades them for good, after which an older MLflow cannot open "
        "them: copy them first"
    )


@cache
def read_schema_versions() -> tuple[str, frozenset[str]]:
    """The version of the tables that the installed MLflow makes, and the versions before it.

    Read from the files of its migrations, as Alembic reads them, without importing MLflow, which takes seconds.
    """
    package = find_spec("mlflow")
    assert package is not None, "it is installed"
    assert package.origin is not None, "it has a file"
    folder = Path(package.origin).parent / MIGRATIONS
    migrations = [REVISION.findall(file.read_text(encoding="utf-8")) for file in folder.glob("*.py")]
    revisions, before = (
        {number for pairs in migrations for name, number in pairs if name == kind}
        for kind in ("revision", "down_revision")
    )
    [newest] = revisions - before
    return newest, frozenset(before)


def _read_tables_and_versions(address: str) -> tuple[list[str], list[str]]:
    """The names of a database's tables, and the rows of its table of versions; nothing of a file that is not there."""
    if not address.startswith("sqlite:"):
        return _read_server_tables(address)
    file = Path(address.removeprefix("sqlite:///"))
    if not file.parent.is_dir():
        raise UnreachableError("its folder does not exist")
    if not file.exists():
        return [], []
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True, timeout=ASK_SECONDS)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return tables, [row[0] for row in database.execute(VERSION)] if VERSION_TABLE in tables else []


def _read_server_tables(address: str) -> tuple[list[str], list[str]]:
    from sqlalchemy import inspect, text

    with _open_connection(address) as connection:
        tables = inspect(connection).get_table_names()
        return tables, [*connection.execute(text(VERSION)).scalars()] if VERSION_TABLE in tables else []


def _check_server_answers(address: str) -> None:
    """One question that any tracking server answers, with the credentials of the environment."""
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    try:
        answer = http_request(
            get_default_host_creds(address),
            "/api/2.0/mlflow/experiments/search",
            "GET",
            params={"max_results": 1},
            max_retries=0,
            timeout=ASK_SECONDS,
            raise_on_status=False,
        )
    except Exception as error:
        raise UnreachableError(f"cannot be reached: {_find_root_cause(error)}") from None
    if answer.status_code != 200:
        message = " ".join(answer.text.split())[:120]
        why = REFUSED.get(answer.status_code, "expected MLflow's tracking server")
        raise UnreachableError(f"{why} (status {answer.status_code}{f': {message}' if message else ''})")
    try:
        answer.json()
    except ValueError:
        raise UnreachableError("what answers there is not MLflow's tracking server") from None


def _find_root_cause(error: BaseException) -> BaseException:
    """What the network said, below what MLflow and its libraries make of it."""
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
    return error


@contextmanager
def _hold_making_lock(address: str, make: bool = True) -> Iterator[None]:
    """Hold a lock: two processes that make MLflow's tables at once would both fail.

    Without `make` no file is made for it.
    """
    if address.startswith("sqlite:"):
        file = Path(f"{address.removeprefix('sqlite:///')}.lock")
        if not (make or file.exists()):
            yield
            return
        with file.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        return
    from sqlalchemy import text

    with _open_connection(address) as connection:
        connection.execute(text(f"SELECT pg_advisory_lock({MAKING})"))
        yield


@contextmanager
def _open_connection(address: str) -> "Iterator[Connection]":
    """A connection to a database server."""
    from sqlalchemy import create_engine

    try:
        engine = create_engine(address, connect_args={"connect_timeout": ASK_SECONDS})
    except ModuleNotFoundError as error:
        raise UnreachableError(f"the package {error.name} is missing: pip install 'posttrain[servers]'") from None
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def get_or_create_shared_experiment(client: "MlflowClient", address: str, artifacts: Path, name: str) -> str:
    """The id of the experiment of this name, which is made if there is none.

    A tracking server keeps the files of runs; beside a database they are in the folder `artifacts` of the clone that
    came first. UnreachableError where that folder is not on this machine.
    """
    from mlflow.exceptions import MlflowException

    existing = client.get_experiment_by_name(name)
    if existing is None:
        location = None if mlflow_address.is_server_address(address) else str(artifacts)
        if location is not None:
            artifacts.mkdir(parents=True, exist_ok=True)
        try:
            client.create_experiment(name, artifact_location=location, tags=EXPERIMENT)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another clone was faster
                raise
        existing = client.get_experiment_by_name(name)
    assert existing is not None, "it is there now"
    if existing.lifecycle_stage == "deleted":
        raise UnreachableError(f"the experiment {name} was deleted; `mlflow experiments restore` brings it back")
    folder = parse_local_folder(existing.artifact_location)
    if folder is not None and not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise UnreachableError(
            f"the experiment {name} keeps the files of runs in {folder}, which cannot be written "
            "here; share that folder, "
            "or use a tracking server that serves files"
        )
    identity: str = existing.experiment_id
    return identity


def parse_local_folder(location: str) -> Path | None:
    """The folder that an artifact location names, None where it is no folder of a machine (mlflow-artifacts:, s3:,
    ...).
    """
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(location)
    return Path(unquote(parts.path) if parts.scheme else location) if parts.scheme in ("", "file") else None
