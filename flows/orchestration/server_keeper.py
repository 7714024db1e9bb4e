"""Keeps the repository's own Prefect server running while it is in use, and for some minutes after: `python -m
flows.orchestration.server_keeper ROOT`.

It is a process of its own, so that the server outlives the run that first needed it. Whoever uses the server holds a
shared lock on USERS. The server listens on loopback alone and answers only requests with the repository's token
(Prefect's own basic authentication).
"""

import fcntl
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from types import FrameType
from typing import IO, NamedTuple

from flows.engine.server_guard import HOST, find_free_port
from flows.machine import files
from flows.machine.supervisor import Command

HOME = Path("mlruns/prefect")
DATABASE = Path("mlruns/prefect.db")
NOTE = Path("mlruns/prefect-server.json")  # the address and the keeper's process while the server runs
LOG = Path("mlruns/logs/prefect-server.log")
PAGES = HOME / "pages"  # a copy of Prefect's own, which its server makes
# What a browser may ask while it shows them: this server alone, whatever a page's scripts would like to tell others.
POLICY = """<meta http-equiv="Content-Security-Policy" content="connect-src 'self'; form-action 'self'">"""
LOCK = HOME / "keeper.lock"
USERS = HOME / "users.lock"
STOPPED = HOME / "stopped"  # is there from `posttrain ui --stop` until the next start
MINUTES = "POSTTRAIN_SERVER_MINUTES"
USUAL_MINUTES = 15.0
LOOK_SECONDS = 0.5
FIRST_SECONDS = 60.0  # in which the first user has to come
RESTART_SECONDS = 30.0  # a server that ends twice sooner than this after its start is not started again
TOKEN = "POSTTRAIN_TOKEN"


def main() -> None:
    """Keep the server of the repository at ROOT until nobody has used it for a while, the repository is gone, or a
    signal comes.
    """
    root = Path(sys.argv[1])
    minutes = parse_idle_minutes(os.environ)
    files.make_folder(root, HOME)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _exit_on_signal)
    with (root / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another process keeps it
            return
        _create_database_from_template(root)
        with _choose_port_and_write_note(root) as port:
            _keep_server_running(root, port, minutes)


def parse_idle_minutes(environ: Mapping[str, str]) -> float:
    """For how many minutes the server stays without a user; ValueError where the variable has no number."""
    text = environ.get(MINUTES, "") or str(USUAL_MINUTES)
    with suppress(ValueError):
        if 0 <= float(text) < float("inf"):
            return float(text)
    raise ValueError(f"{MINUTES}: expected a number of minutes of at least 0, got {text!r}")


def build_prefect_storage_variables(root: Path) -> dict[str, str]:
    """The environment variables with which Prefect keeps its history in mlruns/."""
    return {
        "PREFECT_HOME": str(root / HOME),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{root / DATABASE}",
    }


def get_database_template_path() -> Path:
    """Where set-up leaves an empty, migrated database of this version of Prefect: to make one takes the server half a
    minute.
    """
    return Path(sys.prefix, "share/posttrain", f"prefect-{metadata.version('prefect')}.db")


def _create_database_from_template(root: Path) -> None:
    if not (root / DATABASE).exists() and get_database_template_path().is_file():
        partial = (root / DATABASE).with_suffix(f".{os.getpid()}")
        shutil.copyfile(get_database_template_path(), partial)
        partial.replace(root / DATABASE)


@contextmanager
def _choose_port_and_write_note(root: Path) -> Iterator[int]:
    """Say at which address the server is to be found; yields a free port, the one of before if possible."""
    before = read_server_note(root)
    port = find_free_port(before.port if before else 0)
    partial = (root / NOTE).with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(ServerNote(f"http://{HOST}:{port}/api", port, os.getpid())._asdict()))
    partial.replace(root / NOTE)
    yield port


class ServerNote(NamedTuple):
    """Where the server is to be found, and the process that keeps it."""

    url: str
    port: int
    process: int


def read_server_note(root: Path) -> ServerNote | None:
    """What the note says; None without a whole one."""
    try:
        note = json.loads((root / NOTE).read_text())
        return ServerNote(str(note["url"]), int(note["port"]), int(note["process"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep_server_running(root: Path, port: int, minutes: float) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environ |= {
        **build_prefect_storage_variables(root),
        "PREFECT_API_URL": f"http://{HOST}:{port}/api",
        "PREFECT_SERVER_API_AUTH_STRING": f"posttrain:{environ.pop(TOKEN)}",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": f"http://{HOST}:{port}",
        "PREFECT_SERVER_UI_STATIC_DIRECTORY": str(root / PAGES),
        "DO_NOT_TRACK": "1",
    }
    command = [sys.executable, "-P", "-m", "prefect", "server", "start", "--host", HOST, "--port", str(port)]
    (root / LOG).unlink(missing_ok=True)
    started = time.monotonic()
    used = time.monotonic() + max(FIRST_SECONDS - 60 * minutes, 0)
    server = Command([command], root, environ, root / LOG)
    early = 0
    users = (root / USERS).open("a")  # until this process has ended
    try:
        while root.exists():
            _add_content_security_policy(root / PAGES)
            if not _try_lock_users(users):
                used = time.monotonic()
            elif time.monotonic() - used > 60 * minutes:
                return  # with the lock: who comes now waits until the server has gone, and then starts one
            else:
                fcntl.flock(users, fcntl.LOCK_UN)
            if server.wait(LOOK_SECONDS) is not None:  # it was killed, or could not start
                early += time.monotonic() - started < RESTART_SECONDS
                if early > 1:
                    return
                started = time.monotonic()
                server = Command([command], root, environ, root / LOG)
    finally:
        server.stop()


def _add_content_security_policy(pages: Path) -> None:
    """Have the pages say what a browser may ask, as soon as the server has made them."""
    for file in pages.glob("*/index.html"):
        text = file.read_text()
        if POLICY not in text and "<head>" in text:
            partial = file.with_suffix(".partial")
            partial.write_text(text.replace("<head>", f"<head>{POLICY}", 1))
            partial.replace(file)


def _try_lock_users(users: IO[str]) -> bool:
    """Hold the lock of the users alone; False where somebody uses the server."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    main()
