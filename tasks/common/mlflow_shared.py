"""An MLflow that is elsewhere and that many clones may share: a tracking server, or a database that is opened directly.

It is asked once before anything is written, without MLflow's own minutes of trying again, so that a wrong address is known at once.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.common import mlflow_address

if TYPE_CHECKING:
    from mlflow import MlflowClient

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
MAKING = 0x706F7374  # the key of PostgreSQL's lock under which the tables are made
REFUSED = {
    401: "it asks for a user: set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN",
    403: "it refuses this user",
}


class UnreachableError(Exception):
    """A shared MLflow does not answer, or not as one; one line for a person."""


@cache
def open_client(address: str) -> "MlflowClient":
    """A client of the server or database at `address`, once it has answered; its tables are made where the database has none.

    UnreachableError where it does not answer as MLflow does.
    """
    from mlflow import MlflowClient

    if mlflow_address.is_server(address):
        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
        _ask(address)
        return MlflowClient(address)
    with _only_maker(address):
        return MlflowClient(address)


def _ask(address: str) -> None:
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
        raise UnreachableError(f"cannot be reached: {_first_cause(error)}") from None
    if answer.status_code != 200:
        said = " ".join(answer.text.split())[:120]
        why = REFUSED.get(answer.status_code, "expected MLflow's tracking server")
        raise UnreachableError(f"{why} (status {answer.status_code}{f': {said}' if said else ''})")
    try:
        answer.json()
    except ValueError:
        raise UnreachableError("what answers there is not MLflow's tracking server") from None


def _first_cause(error: BaseException) -> BaseException:
    """What the network said, below what MLflow and its libraries make of it."""
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
    return error


@contextmanager
def _only_maker(address: str) -> Iterator[None]:
    """Connect once, and hold a lock meanwhile: two processes that make MLflow's tables at once would both fail."""
    if address.startswith("sqlite:"):
        file = Path(address.removeprefix("sqlite:///"))
        if not file.parent.is_dir():
            raise UnreachableError("its folder does not exist")
        with file.with_name(f"{file.name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        return
    from sqlalchemy import create_engine, text

    try:
        engine = create_engine(address, connect_args={"connect_timeout": ASK_SECONDS})
    except ModuleNotFoundError as error:
        raise UnreachableError(f"the package {error.name} is missing: pip install 'posttrain[servers]'") from None
    try:
        with engine.connect() as connection:
            connection.execute(text(f"SELECT pg_advisory_lock({MAKING})"))
            yield
    finally:
        engine.dispose()


def experiment(client: "MlflowClient", address: str, own: Path, name: str) -> str:
    """The id of the experiment of this name, which is made if there is none.

    A tracking server keeps the files of runs; beside a database they are in the folder `own` of the clone that came first.
    UnreachableError where that folder is not on this machine.
    """
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        place = None if mlflow_address.is_server(address) else str(own)
        if place is not None:
            own.mkdir(parents=True, exist_ok=True)
        try:
            client.create_experiment(name, artifact_location=place, tags=EXPERIMENT)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another clone was faster
                raise
        found = client.get_experiment_by_name(name)
    assert found is not None, "it is there now"
    if found.lifecycle_stage == "deleted":
        raise UnreachableError(f"the experiment {name} was deleted; `mlflow experiments restore` brings it back")
    folder = local_folder(found.artifact_location)
    if folder is not None and not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise UnreachableError(
            f"the experiment {name} keeps the files of runs in {folder}, which cannot be written here; share that folder, "
            "or use a tracking server that serves files"
        )
    identity: str = found.experiment_id
    return identity


def local_folder(place: str) -> Path | None:
    """The folder that an artifact location names, None where it is no folder of a machine (mlflow-artifacts:, s3:, ...)."""
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(place)
    return Path(unquote(parts.path) if parts.scheme else place) if parts.scheme in ("", "file") else None
