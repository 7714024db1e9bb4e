"""Whether people have judged more since: for a run that stays until they have.

What a record of judgements means only the stage that reads it knows. Here its lines are counted: each judgement is a line at least,
so that a stage which asks for forty more need not be tried before there are forty lines more.
"""

import re
import time
from collections.abc import Callable
from pathlib import Path

from flows.engine.state import StageResult

LOOK_SECONDS = 2.0  # between two looks at the files
RECORDS = Path("data/raw")  # the folder that people's judgements come to
ASKED = re.compile(r"\bwaiting for (\d+) more\b")


class Judged:
    """The number of lines in all files of JSON lines below data/raw, as it was when this was made."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._before = self._lines((str(RECORDS),))

    def await_more(self, result: StageResult, stopped: Callable[[], bool]) -> bool:
        """Wait until the files that the stage reads may hold what it asks for; False once `stopped`."""
        asked = ASKED.search(result.reason)
        wanted = int(asked[1]) if asked else 1
        while not stopped():
            now = self._lines(result.awaits)
            grown = sum(now.values()) - sum(self._before.get(file, 0) for file in now)
            if grown >= wanted or any(count < self._before.get(file, 0) for file, count in now.items()):
                return True  # fewer lines: the file was replaced, and may hold anything
            time.sleep(LOOK_SECONDS)
        return False

    def _lines(self, paths: tuple[str, ...]) -> dict[Path, int]:
        """The number of lines of each file."""
        places = [self.root / path for path in paths if Path(path).is_relative_to(RECORDS)]
        files = {file for place in places for file in (place.rglob("*.jsonl") if place.is_dir() else [place])}
        return {file: _count(file) for file in files if file.suffix == ".jsonl" and file.is_file()}


def _count(file: Path) -> int:
    with file.open("rb") as content:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: content.read(2**20), b""))
