"""The outs of a stage's last good run, kept aside while it runs again, and put back if that fails.

DVC removes a stage's outs before the command starts. Here they are renamed, which costs nothing, and a note keeps the
stage's entry of dvc.lock, so that after a `kill -9` the next run knows whether the outs still belong to the record.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from flows.engine.dvc_lock import Entry


class PreviousNote(TypedDict):
    """The note that is kept beside the outs."""

    recorded: Entry | None  # the stage's entry in dvc.lock
    outs: dict[str, bool]  # path -> whether it existed


class Previous:
    """Keeps one stage's outs under `home`/<stage> between `keep` and `restore_outs` or `discard`."""

    def __init__(self, home: Path, stage: str) -> None:
        self.home = home / stage

    def keep(self, outs: Sequence[Path], recorded: Entry | None) -> None:
        """Move what exists of `outs` aside; `recorded` is the stage's entry in dvc.lock."""
        self.discard()
        self.home.mkdir(parents=True)
        existing = {str(out): os.path.lexists(out) for out in outs}
        note: PreviousNote = {"recorded": recorded, "outs": existing}
        (self.home / "note.json").write_text(json.dumps(note))
        for index, (out, exists) in enumerate(existing.items()):
            if exists:
                shutil.move(out, self.home / str(index))

    def restore_outs(self) -> None:
        """Replace what the failed run left of the outs by the kept ones; does nothing after `discard`."""
        if not self.home.exists():
            return
        for index, (out, existed) in enumerate(self._read_note()["outs"].items()):
            kept = self.home / str(index)
            if os.path.lexists(kept) or not existed:  # else a crash came before the move, or after the return
                delete_path(Path(out))
            if os.path.lexists(kept):
                Path(out).parent.mkdir(parents=True, exist_ok=True)
                shutil.move(kept, out)
        self.discard()

    def discard(self) -> None:
        """Delete what was kept."""
        shutil.rmtree(self.home, ignore_errors=True)

    def _read_note(self) -> PreviousNote:
        note: PreviousNote = json.loads((self.home / "note.json").read_text())
        return note


def recover_previous_outs(home: Path, recorded: Mapping[str, Entry]) -> None:
    """After a crash: put back what was kept, unless the stage's entry of dvc.lock (`recorded`) has changed since."""
    for folder in home.iterdir() if home.exists() else []:
        previous = Previous(home, folder.name)
        try:
            note = previous._read_note()
        except (OSError, ValueError):  # the crash came before anything was moved
            note = None
        if note is not None and note["recorded"] == recorded.get(folder.name):
            previous.restore_outs()
        else:
            previous.discard()


def delete_path(path: Path) -> None:
    """Delete a file, link or folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
