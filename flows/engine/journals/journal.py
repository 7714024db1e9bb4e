"""What a run writes down while it runs, so that it need not wait for MLflow: one JSON object a line.

A journal is a folder of mlruns/journals with the file `events`, and the files of the stages that the events name.
Whoever writes it holds a lock on `events`. A process of its own (flows/journal_replayer.py) reads it, writes the
records and deletes the folder. A journal whose lock is free without the event `end` is that of a run that was killed.
"""

import fcntl
import itertools
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from flows.engine.dvc_repository import PlanError
from flows.machine import files

FOLDER = Path("mlruns/journals")
EVENTS = "events"  # the file of a journal that is locked while it is written
FAILED = "failed"  # the file that says that it cannot be recorded
ENDS = ("close", "end")  # kinds of events after which a run has ended
ASIDE = "aside-"  # begins the name of a journal that could not be recorded; its file `failed` says why
FAULTS = "faults"  # beside the journals: a line for each record that could not be written
OLD_SECONDS = 60.0  # until a hidden folder is one that a kill has left
Event = Mapping[str, Any]  # `kind`, `time` in milliseconds, and what belongs to the kind

_own: set[Path] = set()  # the journals that this process is writing


class Journal:
    """Written by one process, whose threads take turns. It appears when its first event is there."""

    def __init__(self, root: Path, kind: str, **content: object) -> None:
        name = f"{time.time_ns():020}-{os.getpid()}"
        hidden = root / FOLDER / f".{name}"
        self.folder = root / FOLDER / name
        self._turn = threading.Lock()
        with convert_disk_errors_to_plan_error():
            files.make_folder(root, FOLDER)
            hidden.mkdir()
            self._file = (hidden / EVENTS).open("ab", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self.write(kind, **content)
            _own.add(self.folder)
            hidden.rename(self.folder)

    def write(self, kind: str, **content: object) -> None:
        """Add an event of this moment."""
        line = json.dumps({"kind": kind, "time": time.time_ns() // 1_000_000, **content}).encode() + b"\n"
        with self._turn, convert_disk_errors_to_plan_error():
            if self._file.closed:
                raise OSError("the journal of this run is closed")
            begun = os.fstat(self._file.fileno()).st_size
            try:
                while line:
                    line = line[self._file.write(line) :]
            except OSError:  # the disk is full: no torn line stays before those that may yet come
                os.ftruncate(self._file.fileno(), begun)
                raise

    def sync(self) -> None:
        """Have the events on the disk before anything that follows."""
        with convert_disk_errors_to_plan_error():
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Write the last event, and leave the journal to its reader."""
        try:
            self.write("end")
        finally:
            self.leave()

    def leave(self) -> None:
        """Leave the journal to its reader; without a last event its run counts as one that was killed."""
        self._file.close()
        _own.discard(self.folder)


class Reading:
    """The events of a journal as they come."""

    def __init__(self, folder: Path) -> None:
        # the run in MLflow that the first event names
        self.folder = folder
        self.run = ""
        self._file = (folder / EVENTS).open("rb")

    def new(self) -> Iterator[Event]:
        """Those that are whole and not yet read."""
        for line in self._file:
            if not line.endswith(b"\n"):  # being written, or torn by a kill
                self._file.seek(-len(line), os.SEEK_CUR)
                return
            event = json.loads(line)
            self.run = self.run or event.get("run", "")
            yield event

    def is_abandoned(self) -> bool:
        """Whether nobody writes it any more. Events that came before the lock was free may still be new."""
        return _is_unlocked(self.folder)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def list_journals(root: Path) -> list[Path]:
    """All journals, the oldest first."""
    with suppress(FileNotFoundError):
        return sorted(folder for folder in (root / FOLDER).iterdir() if folder.name[0].isdigit())
    return []


def list_ended_journals(root: Path) -> list[Path]:
    """Those that nobody writes any more, and that MLflow does not have yet.

    They are recorded in their order: none of those after one that is still written can be waited for.
    """
    return [*itertools.takewhile(lambda folder: folder not in _own and _is_unlocked(folder), list_journals(root))]


def read_journal_failure_reasons(root: Path) -> dict[Path, str]:
    """The journals that could not be recorded, each with the reason."""
    folders = sorted((root / FOLDER).glob(f"{ASIDE}*"))
    return {folder: _read_text_as_line(folder / FAILED) for folder in folders}


def _read_text_as_line(file: Path) -> str:
    try:
        return " ".join(file.read_text(errors="replace").split())
    except OSError:
        return ""


def collect_journal_run_ids(root: Path) -> set[str]:
    """The runs in MLflow that journals begin."""
    ids = set[str]()
    for folder in list_journals(root):
        with suppress(OSError, ValueError):
            reading = Reading(folder)
            ids |= {event["run"] for event in reading.new() if event["kind"] in ("begin", "start")}
            reading.close()
    return ids


def _is_unlocked(folder: Path) -> bool:
    try:
        with (folder / EVENTS).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except FileNotFoundError:  # it has been recorded meanwhile
        return True
    return True


def link_or_copy_file(file: Path, target: Path) -> None:
    """Keep a file's content at `target`, whatever becomes of its name; nothing where there is no such file."""
    target.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        try:
            os.link(file, target)
        except FileNotFoundError:
            raise
        except OSError:  # no links on this file system
            shutil.copyfile(file, target)


def append_recording_faults(root: Path, faults: Mapping[str, str], run_id: str) -> None:
    """Note what could not be recorded of a run, by stage."""
    lines = (json.dumps({"run": run_id, "stage": stage, "text": text}) for stage, text in faults.items())
    with _open_locked_faults_file(root) as file:
        file.seek(0, os.SEEK_END)
        file.writelines(f"{line}\n" for line in lines)


def pop_recording_faults(root: Path, run_id: str | None = None) -> list[dict[str, str]]:
    """What could not be recorded of runs, or of one run, since this was last asked: `run`, `stage` and `text`."""
    if not (root / FOLDER / FAULTS).exists():
        return []
    faults = list[dict[str, str]]()
    kept = list[str]()
    with suppress(OSError), _open_locked_faults_file(root) as file:
        for line in file:
            with suppress(ValueError):
                fault = json.loads(line)
                if run_id in (None, fault["run"]):
                    faults.append(fault)
                else:
                    kept.append(line)
        file.seek(0)
        file.truncate()
        file.writelines(kept)
    return faults


@contextmanager
def _open_locked_faults_file(root: Path) -> Iterator[IO[str]]:
    """The file of faults, which is made if there is none, for one process at a time."""
    with (root / FOLDER / FAULTS).open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        yield file


@contextmanager
def convert_disk_errors_to_plan_error() -> Iterator[None]:
    """Turn a fault of the disk into a PlanError."""
    try:
        yield
    except OSError as error:
        raise PlanError(f"{FOLDER}: {error.strerror or error}") from error


def delete_journal(folder: Path) -> None:
    """Delete a journal; after a kill on the way it does not count as one any more."""
    hidden = folder.with_name(f".{folder.name}")
    folder.rename(hidden)
    shutil.rmtree(hidden)


def delete_leftover_journals(root: Path) -> None:
    """Delete what kills have left of journals that had not begun, or were being deleted."""
    for folder in (root / FOLDER).glob(".[0-9]*"):
        with suppress(OSError):
            if _is_unlocked(folder) and time.time() - folder.stat().st_mtime > OLD_SECONDS:
                shutil.rmtree(folder)
