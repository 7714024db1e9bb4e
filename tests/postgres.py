"""A throwaway PostgreSQL cluster on loopback, and MLflow's and Prefect's servers on it; nothing of it outlives the
test.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from urllib.parse import quote

import pytest

from flows.engine.server_guard import find_free_port

PASSWORD = f"made-up/{token_hex(8)}@word"  # with letters that an address must quote; random, so that no source has it
AUTHORISED = f"somebody:{token_hex(8)}"
WAIT_SECONDS = 180.0


def binary(name: str) -> Path:
    """A program of PostgreSQL's server; the test is skipped where there is none."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = str(places[-1]) if places else shutil.which(name)
    if found is None:
        pytest.skip(f"needs PostgreSQL's {name}: apt install postgresql")
    return Path(found)


@dataclass(frozen=True)
class Cluster:
    """A running cluster; each database in it belongs to the user `posttrain`."""

    port: int

    def address(self, database: str, driver: str = "postgresql") -> str:
        return f"{driver}://posttrain:{quote(PASSWORD, safe='')}@127.0.0.1:{self.port}/{database}"

    def sql(self, database: str, statement: str) -> list[str]:
        """The rows that a statement returns, as texts."""
        return self._client("psql", database, "-Atc", statement).decode().splitlines()

    def dump(self, database: str) -> bytes:
        """Everything in a database."""
        return self._client("pg_dump", database)

    def _client(self, program: str, database: str, *arguments: str) -> bytes:
        command = [str(binary(program)), "-h", "127.0.0.1", "-p", str(self.port), "-U", "posttrain", "-d", database]
        environ = {**os.environ, "PGPASSWORD": PASSWORD}
        return subprocess.run([*command, *arguments], env=environ, capture_output=True, check=True).stdout


@contextmanager
def cluster(*databases: str) -> Iterator[Cluster]:
    """A cluster of its own with these databases; it runs as the user postgres where the test runs as root."""
    for driver in ("psycopg", "asyncpg"):
        pytest.importorskip(driver)
    initdb, postgres = binary("initdb"), binary("postgres")
    if os.geteuid() == 0 and (shutil.which("runuser") is None or not _exists("postgres")):
        pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    home, port = Path(tempfile.mkdtemp(prefix="posttrain-postgres-")), find_free_port()
    try:
        (home / "password").write_text(PASSWORD)
        if as_user:
            shutil.chown(home, "postgres")
            shutil.chown(home / "password", "postgres")
        data = str(home / "data")
        made = [str(initdb), "-D", data, "-U", "posttrain", "--auth=scram-sha-256", "--no-sync", "--encoding=UTF8"]
        subprocess.run([*as_user, *made, f"--pwfile={home}/password"], check=True, capture_output=True, cwd=home)
        listening = ["-h", "127.0.0.1", "-p", str(port), "-k", "", "-c", "fsync=off"]
        with (home / "log").open("wb") as log:
            server = subprocess.Popen(
                [*as_user, str(postgres), "-D", data, *listening], stdout=log, stderr=log, cwd=home
            )
        try:
            running = Cluster(port)
            _wait(lambda: _answers(running))
            for name in databases:
                running.sql("postgres", f"CREATE DATABASE {name}")
            yield running
        finally:
            stop = [str(binary("pg_ctl")), "-D", data, "-m", "immediate", "stop"]
            subprocess.run([*as_user, *stop], check=False, capture_output=True, cwd=home)
            server.wait(60)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _exists(user: str) -> bool:
    import pwd

    return any(one.pw_name == user for one in pwd.getpwall())


def _answers(running: Cluster) -> bool:
    try:
        return running.sql("postgres", "SELECT 1") == ["1"]
    except subprocess.CalledProcessError:
        return False


@contextmanager
def servers(running: Cluster, home: Path) -> Iterator[Mapping[str, str]]:
    """MLflow's server on the database `mlflow` and Prefect's on `prefect`, with a user; yields what a clone's
    environment needs.
    """
    mlflow, prefect = find_free_port(), find_free_port()
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT", "MLFLOW"))}
    environ |= {"DO_NOT_TRACK": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    commands = {
        f"http://127.0.0.1:{mlflow}/health": (
            [
                *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(mlflow)),
                *("--workers", "1", "--artifacts-destination", str(home / "artifacts")),
            ],
            {"MLFLOW_BACKEND_STORE_URI": running.address("mlflow"), "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        ),
        f"http://127.0.0.1:{prefect}/api/health": (
            [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(prefect)],
            {
                "PREFECT_SERVER_DATABASE_CONNECTION_URL": running.address("prefect", "postgresql+asyncpg"),
                "PREFECT_SERVER_API_AUTH_STRING": AUTHORISED,
                "PREFECT_HOME": str(home / "prefect"),
            },
        ),
    }
    with ExitStack() as stack:
        started = {}
        for index, (health, (command, variables)) in enumerate(commands.items()):
            log = stack.enter_context((home / f"server-{index}.log").open("wb"))
            started[health] = subprocess.Popen(command, env={**environ, **variables}, stdout=log, stderr=log, cwd=home)
            stack.callback(started[health].wait, 60)
            stack.callback(started[health].terminate)
        for index, (health, process) in enumerate(started.items()):
            _wait(lambda health=health, process=process: _is_up(health) or process.poll() is not None)
            assert process.poll() is None, (home / f"server-{index}.log").read_text()[-3000:]
        yield {
            "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{mlflow}",
            "PREFECT_API_URL": f"http://127.0.0.1:{prefect}/api",
            "PREFECT_API_AUTH_STRING": AUTHORISED,
        }


def _is_up(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _wait(until, seconds: float = WAIT_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline, "the server did not come up"
        time.sleep(0.3)
