"""Notes of the attempts that a coordinator waits for on workers: by them a worker in the checkout knows that it is
still wanted.

A note is one small file for each stage. The next coordinator finds those that a killed one left.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from flows.engine.dvc_repository import PlanError
from flows.machine import stage_lock

FOLDER = Path(".dvc/tmp/posttrain/attempts")
END_SECONDS = 30.0  # in which a worker that is not wanted any more ends its command


@dataclass(frozen=True)
class AttemptNote:
    """An attempt at a stage: its own random name, the flow run that it is and on which server, what it makes."""

    stage: str
    attempt: str
    shared: bool  # whether it writes to this very checkout
    key: str  # of the run cache: command, deps, params, and the paths of the outs
    url: str
    run: str = ""  # "" until Prefect's server knows it


def write_attempt_note(root: Path, note: AttemptNote) -> None:
    """Keep the note, in place of an earlier one of the stage."""
    file = _get_note_path(root, note.stage)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(asdict(note)))
    partial.replace(file)


def read_attempt_note(root: Path, stage: str) -> AttemptNote | None:
    """The stage's note; None if there is none, or a torn one."""
    try:
        return AttemptNote(**json.loads(_get_note_path(root, stage).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def delete_attempt_note(root: Path, stage: str) -> None:
    """Delete the stage's note."""
    _get_note_path(root, stage).unlink(missing_ok=True)


def list_attempt_notes(root: Path) -> list[AttemptNote]:
    """The notes of all stages."""
    notes = (read_attempt_note(root, file.stem) for file in sorted((root / FOLDER).glob("*.json")))
    return [note for note in notes if note is not None]


class StillWritingError(PlanError):
    """A worker that is not wanted any more does not end, so nobody else may touch the outs."""


def wait_for_stage_writer(root: Path, stage: str, say: Callable[[str], None], failed: Callable[[], bool]) -> None:
    """Wait until nobody writes the stage's outs any more, and say for whom.

    StillWritingError after END_SECONDS if the stage has `failed`, so that nothing but the old outs waits for it.
    """
    deadline = time.monotonic() + END_SECONDS
    while (holder := stage_lock.find_stage_lock_holder(root, stage)) is not None:
        if failed() and time.monotonic() > deadline:
            raise StillWritingError(f"{holder} may still write its outs, and the next run puts the old ones back")
        say(f"waits until {holder} has ended")
        time.sleep(stage_lock.LOOK_SECONDS)


def stop_leftover_writers(root: Path) -> None:
    """End what a killed coordinator's workers still write in this checkout; PlanError if one does not end."""
    for note in list_attempt_notes(root):
        if note.shared:
            delete_attempt_note(root, note.stage)
    deadline = time.monotonic() + END_SECONDS
    for file in sorted((root / stage_lock.FOLDER).glob("*.lock")):
        while (holder := stage_lock.find_stage_lock_holder(root, file.stem)) is not None:
            if time.monotonic() > deadline:
                raise PlanError(f"{file.stem}: still being written by {holder}; wait until it ends, or stop it")
            time.sleep(stage_lock.LOOK_SECONDS)


def _get_note_path(root: Path, stage: str) -> Path:
    return root / FOLDER / f"{stage}.json"
