"""What `posttrain clean` has removed, and when: written before the first byte goes, so that nobody takes what is
missing for damage.

A line of the file is one JSON object: the time, the hashes of the cache's objects, and the other files by their path. A
kill between this note and the removal leaves objects that are noted and still there, so what is there is asked of the
disk, never of this file.
"""

import json
import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

FILE = Path("mlruns/cleaned.jsonl")


def append_removal(root: Path, objects: Iterable[str], files: Iterable[str]) -> None:
    """Write down what is about to be removed, safely to the disk."""
    file = root / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    line = {
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
        "objects": sorted(objects),
        "files": sorted(files),
    }
    with file.open("a") as journal:
        torn = file.stat().st_size and not file.read_bytes().endswith(b"\n")
        journal.write("\n" * bool(torn) + json.dumps(line) + "\n")
        journal.flush()
        os.fsync(journal.fileno())


def load_removal_times(root: Path) -> Mapping[str, datetime]:
    """The hash of each object, and the path of each other file, that was ever removed, with the last time."""
    removal_times: dict[str, datetime] = {}
    try:
        lines = (root / FILE).read_text(errors="replace").splitlines()
    except OSError:
        return removal_times
    for text in lines:
        try:
            line = json.loads(text)
            time = datetime.fromisoformat(line["time"])
            names = [str(name) for name in (*line["objects"], *line["files"])]
        except (ValueError, KeyError, TypeError):  # torn by a kill, after which nothing was removed
            continue
        removal_times |= dict.fromkeys(names, time)
    return removal_times


def format_removal_date(when: datetime) -> str:
    """How other messages say it."""
    return f"removed by `posttrain clean` on {when:%Y-%m-%d}"
