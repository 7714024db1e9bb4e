"""The record of people's judgements: JSON lines that are only ever appended, in one file or in the files of a folder.

Two files, or the two sides of a git merge, together are one record: the same judgement twice is one, by its id, and
which was taken back does not depend on the order of the files. Lines are the types of lines.py.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pandas as pd

from tasks.common.errors import DataError
from tasks.language.judgements.lines import (
    Flag,
    Item,
    Judgement,
    Line,
    Skip,
    Undo,
    find_value_fault,
    format_line_as_json,
    parse_line,
)
from tasks.language.tables.judgements import Judgements

LONGEST = 2**24  # bytes of a line
LARGEST = 2**31  # bytes of a file


class JudgementRecord:
    """What people were asked and what they said: `add` takes a line in, and refuses one that does not fit the lines
    before.
    """

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}  # an item that stands twice is as it stands last
        self.skips: list[Skip] = []
        self.flags: list[Flag] = []
        self._judgements: dict[str, Judgement] = {}
        self._undone: dict[str, Judgement] = {}
        self._seen: set[Skip | Flag] = set()

    @property
    def judgements(self) -> list[Judgement]:
        """Those that count, since nobody took them back, in their order."""
        return list(self._judgements.values())

    def add(self, line: Line) -> None:
        """Take in one more line; ValueError in one line if it does not fit."""
        self.check(line)
        match line:
            case Item():
                self.items[line.item] = line
            case Judgement() if self.known(line.judgement) is None:
                self._judgements[line.judgement] = line
            case Undo() if line.judgement in self._judgements:
                self._undone[line.judgement] = self._judgements.pop(line.judgement)
            case Skip() if line not in self._seen:
                self.skips.append(line)
                self._seen.add(line)
            case Flag() if line not in self._seen:
                self.flags.append(line)
                self._seen.add(line)

    def check(self, line: Line) -> None:
        """ValueError in one line if the line does not fit those before."""
        if isinstance(line, Undo):
            judgement = self.known(line.judgement)
            if judgement is None:
                raise ValueError(f"judgement: there is none with id {line.judgement} to take back")
            if judgement.person != line.person:
                raise ValueError(f"person: {line.person!r} takes back a judgement of {judgement.person!r}")
        if isinstance(line, Judgement | Skip | Flag) and line.item not in self.items:
            raise ValueError(f"item: unknown item {line.item}; its own line should stand before")
        if isinstance(line, Judgement):
            self._check_judgement(line, self.items[line.item])

    def known(self, judgement: str) -> Judgement | None:
        """The judgement with this id, whether it counts or was taken back; None if there is none."""
        return self._judgements.get(judgement) or self._undone.get(judgement)

    def _check_judgement(self, line: Judgement, item: Item) -> None:
        if line.mode != item.mode:
            raise ValueError(f"mode: expected {item.mode!r}, the item's, got {line.mode!r}")
        if sorted(line.order) != [*range(len(item.answers))]:
            raise ValueError(f"order: expected 0 to {len(item.answers) - 1} in some order, got {list(line.order)}")
        if wrong := find_value_fault(line.value, item):
            raise ValueError(f"value: {wrong}")
        before = self.known(line.judgement)
        if before is not None and (before.item, before.person, before.value) != (line.item, line.person, line.value):
            raise ValueError(
                f"judgement: id {line.judgement} stands before another judgement; expected an id of its own"
            )

    def table(self) -> pd.DataFrame:
        """The judgements that count, one row for each (schema Judgements)."""
        rows = [
            {
                **line.model_dump(include={"judgement", "item", "mode", "person", "at", "seconds", "repeat"}),
                "prompt_id": self.items[line.item].prompt_id,
                "order": list(line.order),
                "value": line.value.model_dump_json(by_alias=True),
                "gold": self.items[line.item].gold is not None,
            }
            for line in self.judgements
        ]
        return Judgements.of(rows)


def read_judgement_record(path: Path) -> JudgementRecord:
    """The record in a file, or in all `.jsonl` files of a folder by their names; DataError `FILE:LINE: what is wrong`.

    Items are taken in before what people said of them, and what was taken back last, whichever file has them.
    """
    if not path.exists():
        raise DataError(f"{path}: no such file or folder; expected a record of judgements (.jsonl)")
    located_lines = [(where, line) for file in _list_record_files(path) for where, line in _iterate_located_lines(file)]
    record = JudgementRecord()
    for kinds in ((Item,), (Judgement, Skip, Flag), (Undo,)):
        for where, line in located_lines:
            if isinstance(line, kinds):
                try:
                    record.add(line)
                except ValueError as error:
                    raise DataError(f"{where}: {error}") from None
    return record


def _list_record_files(path: Path) -> list[Path]:
    return sorted(path.glob("*.jsonl")) if path.is_dir() else [path]


def _iterate_located_lines(path: Path) -> Iterator[tuple[str, Line]]:
    """Each line with its place. A last line without its newline was never acknowledged, and is left out."""
    if not path.is_file():
        raise DataError(f"{path}: expected a file of JSON lines")
    if path.stat().st_size > LARGEST:
        raise DataError(
            f"{path}: expected at most {LARGEST} bytes; divide the file, a folder of files is one record too"
        )
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    with file:
        number = 0
        while text := file.readline(LONGEST):
            number += 1
            if not text.endswith(b"\n"):
                if len(text) < LONGEST:
                    return
                raise DataError(f"{path}:{number}: expected at most {LONGEST} bytes in a line")
            try:
                yield f"{path}:{number}", parse_line(text)
            except ValueError as error:
                raise DataError(f"{path}:{number}: {error}") from None


class Writer:
    """Appends lines to a file, each on disk before `append` returns; nobody else can while it is open.

    `record` is what the file's folder holds, and grows with each line. DataError if another process writes the file, if
    a line does not fit, if the disk is full, or if the file was replaced or changed by another program.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _open_for_appending(path)
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DataError(f"{path}: another process is writing this file; end it, or name another file") from None
            self._size = _truncate_torn_line(self._file)
            os.fsync(self._file)
            _sync_folder(path.parent)
            self.record = read_judgement_record(path.parent)
        except BaseException:
            os.close(self._file)
            raise

    def append(self, line: Line) -> None:
        """Write a line and bring it to the disk; on failure the file is as it was before."""
        try:
            self.record.check(line)
        except ValueError as error:
            raise DataError(f"{self.path}: not written: {error}") from None
        text = format_line_as_json(line).encode() + b"\n"
        if len(text) >= LONGEST:
            raise DataError(f"{self.path}: not written: expected at most {LONGEST} bytes in a line")
        self._check_file_unchanged()
        try:
            if (written := os.write(self._file, text)) < len(text):
                raise OSError(f"only {written} of {len(text)} bytes could be written")
            os.fsync(self._file)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise DataError(f"{self.path}: not written: {error.strerror or error}") from None
        self._size += len(text)
        self.record.add(line)

    def close(self) -> None:
        """Let others write the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _check_file_unchanged(self) -> None:
        """What is written to a file that git has replaced would be lost."""
        ours = os.fstat(self._file)
        try:
            on_disk = self.path.stat()
        except OSError:
            raise DataError(f"{self.path}: not written: the file is gone; start again") from None
        if (on_disk.st_dev, on_disk.st_ino, on_disk.st_size) != (ours.st_dev, ours.st_ino, self._size):
            raise DataError(f"{self.path}: not written: another program has changed the file; start again")


def _open_for_appending(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise DataError(f"{path}: cannot be written: expected a file")
    return file


def _truncate_torn_line(file: int) -> int:
    """Cut off what stands behind the last newline: it was never acknowledged. Returns the file's size."""
    size = end = os.fstat(file).st_size
    while end > 0:
        start = max(0, end - 65536)
        if (newline := os.pread(file, end - start, start).rfind(b"\n")) >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        os.ftruncate(file, end)
    return end


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
