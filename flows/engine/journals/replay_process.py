"""Has the journals of runs that have ended written to MLflow, by a process of its own, and waits for it."""

import fcntl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from flows.engine.dvc_repository import PlanError
from flows.engine.journals import journal
from flows.machine import files
from tasks.common import mlflow_database
from tasks.common.mlflow_database import DatabaseError

LOG = Path("mlruns/logs/recorder.log")
LOOK_SECONDS = 0.02
TELL_SECONDS = 1.0  # until a person is told for what it waits
TRIES = 3  # processes that may end before a journal is given up

_recording = False  # whether this is the process that records
_said: set[Path] = set()  # journals that were put aside, as this process has told


@contextmanager
def hold_recorder_lock(root: Path) -> Iterator[Iterator[Path]]:
    """Be the process that records, once no other one is: yields the journals, the oldest first, until there is none
    left.
    """
    global _recording
    _recording = True
    files.make_folder(root, journal.FOLDER)
    with (root / journal.FOLDER / "lock").open("a") as lock, (root / journal.FOLDER / "door").open("a") as door:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def there() -> Iterator[Path]:
            while True:
                yield from journal.list_journals(root)[:1]
                fcntl.flock(door, fcntl.LOCK_EX)  # whoever finds the lock held behind this door is seen to
                if not journal.list_journals(root):
                    fcntl.flock(lock, fcntl.LOCK_UN)
                    return
                fcntl.flock(door, fcntl.LOCK_UN)

        yield there()


def start_recorder_unless_running(root: Path) -> Thread | None:
    """Start a process that records all journals and then ends, unless one is at work; the thread waits for its end."""
    if _is_recorder_running(root):
        return None
    files.make_folder(root, LOG.parent)
    with (root / LOG).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "flows.journal_replayer", str(root)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=root,
            start_new_session=True,  # neither Ctrl-C nor the end of this process reaches it
        )
    waiting = Thread(target=process.wait, name="recorder", daemon=True)
    waiting.start()
    return waiting


def start_recorder_if_journals_ended(root: Path) -> bool:
    """Have what has ended recorded, without waiting for it; whether there was anything."""
    left = bool(journal.list_ended_journals(root))
    if left:
        start_recorder_unless_running(root)
    return left


def wait_for_recorded_runs(root: Path) -> None:
    """Wait until MLflow has all runs that have ended.

    PlanError where the database cannot be used, or the process that writes them fails again and again. A line says what
    was put aside.
    """
    for line in _pop_new_failed_journal_lines(root):
        print(line, file=sys.stderr)
    if not _recording and journal.list_ended_journals(root) and (why := find_database_fault(root)):
        raise PlanError(f"{why}; {_format_waiting_records(root)}")
    tell_at = time.monotonic() + TELL_SECONDS if sys.stderr.isatty() else float("inf")
    for _ in range(TRIES):
        if _recording or not journal.list_ended_journals(root):
            return
        started = start_recorder_unless_running(root)
        while journal.list_ended_journals(root) and (started.is_alive() if started else _is_recorder_running(root)):
            time.sleep(LOOK_SECONDS)
            if time.monotonic() > tell_at:
                print("waits until the last run is recorded", file=sys.stderr)
                tell_at = float("inf")
    if journal.list_ended_journals(root):
        raise PlanError(f"{LOG}: an earlier run could not be recorded")


def pop_recording_problems(root: Path) -> list[str]:
    """A line for each run of which something could not be recorded, unless it was told before, and for those that wait
    to be.
    """
    faults = dict[str, str]()
    for fault in journal.pop_recording_faults(root):
        faults.setdefault(fault["run"], fault["text"])
    lines = [f"what MLflow has of run {run[:8]} is incomplete: {text}" for run, text in faults.items()]
    if journal.list_ended_journals(root) and (why := find_database_fault(root)):
        lines.append(f"what MLflow has is incomplete: {why}; {_format_waiting_records(root)}")
    return [*lines, *_pop_new_failed_journal_lines(root)]


def find_database_fault(root: Path) -> str:
    """Why the repository's own database cannot be used as it is; empty where it can."""
    try:
        mlflow_database.prepare_database(root, make=False)
    except DatabaseError as error:
        return str(error)
    return ""


def _format_waiting_records(root: Path) -> str:
    return (
        f"{len(journal.list_ended_journals(root))} records wait in {journal.FOLDER}, and are written when it can be "
        "used"
    )


def _pop_new_failed_journal_lines(root: Path) -> list[str]:
    """A line for each journal that could not be recorded, unless this process has said it."""
    lines = {
        folder: f"{folder.relative_to(root)}: what a run left here could not be recorded ({why or f'see {LOG}'}); "
        f"without '{journal.ASIDE}' in its name it is tried again"
        for folder, why in journal.read_journal_failure_reasons(root).items()
        if folder not in _said
    }
    _said.update(lines)
    return [*lines.values()]


def _is_recorder_running(root: Path) -> bool:
    """Whether a process is at work that will look for journals once more before it ends."""
    files.make_folder(root, journal.FOLDER)
    with (root / journal.FOLDER / "lock").open("a") as lock, (root / journal.FOLDER / "door").open("a") as door:
        fcntl.flock(door, fcntl.LOCK_EX)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
