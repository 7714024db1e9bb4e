"""Rows of other people's data: files of JSON lines, JSON lists or parquet, folders of them, and data sets of a hub.

A row keeps the place that it came from, so that every fault names file and line.
"""

import codecs
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple, Protocol, TypeVar

from tasks.common import tables
from tasks.common.errors import DataError
from tasks.common.tables import Record
from tasks.language.data.columns import LeftOutError, Omissions

SUFFIXES = (".jsonl", ".json", ".parquet")
HELD_OUT = ("test", "validation", "dev", "eval")  # how the names of files begin whose rows are not trained on
DEEPEST = 100  # levels of lists and objects in a row
SECONDS = 10.0  # within which a hub says how many rows there are
Parsed = TypeVar("Parsed")


class WithUnread(Protocol):
    """A row in one of the forms, with the names of what it says and its form does not read."""

    @property
    def unread(self) -> frozenset[str]:
        """Columns, and keys of messages."""
        ...


Form = TypeVar("Form", bound=WithUnread)


class Row(NamedTuple):
    """One row of a data set."""

    values: Record  # by column
    name: str  # file (or split) and number, which tells it from the other rows
    where: str  # file and line, or split and row, for messages


def parse_row(row: Row, form: Callable[[Record], Parsed]) -> Parsed:
    """`form` of the row's values; a ValueError of it becomes a DataError that names the row, as LeftOutError does."""
    try:
        for column, value in row.values.items():
            _check_encodable_text([column, value], column)
        return form(row.values)
    except LeftOutError as error:
        raise LeftOutError(error.why, row.where) from None
    except ValueError as error:
        raise DataError(f"{row.where}: {error}") from None
    except RecursionError:  # of JSON that stands as text in a field
        raise DataError(f"{row.where}: a field holds values that are nested too deeply") from None


def iterate_learnable_rows(
    rows: Iterable[Row], form: Callable[[Record], Form], omissions: Omissions
) -> Iterator[tuple[Row, Form]]:
    """The rows from which something can be learned, with their `form`; what is left out, and what is not read, is
    counted in `omissions`.
    """
    for row in rows:
        try:
            values = parse_row(row, form)
        except LeftOutError as error:
            omissions.left_out[error.why] += 1
            continue
        omissions.unread.update(values.unread)
        yield row, values


def list_data_files(path: Path) -> list[Path]:
    """A file, or all files of a folder by their names."""
    if not path.is_dir():
        return [path]
    folder_files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
    if not folder_files:
        raise DataError(f"{path}: expected a file, or a folder with files, of type {', '.join(SUFFIXES)}; found none")
    return folder_files


def read_files(path: Path) -> Iterator[Row]:
    """The rows of a file, or of all files of a folder."""
    return _read_listed_files(list_data_files(path))


def is_held_out(name: str) -> bool:
    """Whether the name of a file, or of a row of it, says that it is not trained on."""
    return name.startswith(HELD_OUT)


def read_training_files(path: Path) -> Iterator[Row]:
    """The rows of a file, or of a folder's files but for those that are held out by their names."""
    return _read_listed_files([file for file in list_data_files(path) if file == path or not is_held_out(file.name)])


def read_test_files(path: Path) -> Iterator[Row]:
    """The rows of a file, or of a folder's held-out files; of all its files where no name says so."""
    all_files = list_data_files(path)
    return _read_listed_files([file for file in all_files if is_held_out(file.name)] or all_files)


def _read_listed_files(chosen: list[Path]) -> Iterator[Row]:
    stems = [file.stem for file in chosen]
    for file in chosen:
        yield from read_file(file, file.stem if stems.count(file.stem) == 1 else file.name)


def read_file(path: Path, name: str = "") -> Iterator[Row]:
    """The rows of one file, named by `name`, or by the file's; DataError with one line naming file and line."""
    name = name or path.stem
    if not path.is_file():
        raise DataError(f"{path}: no such file; expected one of type {', '.join(SUFFIXES)}")
    if path.suffix == ".parquet":
        yield from _read_parquet(path, name)
    elif path.suffix == ".json":
        yield from _read_json(path, name)
    elif path.suffix == ".jsonl":
        yield from _read_json_lines(path, name)
    else:
        raise DataError(f"{path}: expected a file of type {', '.join(SUFFIXES)}")


def fetch_hub_rows(name: str, config: str | None, revision: str, split: str) -> Iterator[Row]:
    """Rows of one split of a hub data set at a revision."""
    from datasets import load_dataset

    try:
        splits = load_dataset(name, config, revision=revision)
    except Exception as error:  # of the network, of the hub, of the data set's files
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise DataError(f"{name}: cannot be read from the hub at revision {revision} ({what})") from None
    if split not in splits:
        raise DataError(f"{name}: there is no split {split!r}; expected {' or '.join(map(repr, splits))}")
    for number, values in enumerate(splits[split]):
        yield Row(values, f"{split}-{number}", f"{name}: {split}, row {number}")


def fetch_hub_row_count(name: str, config: str | None, revision: str, split: str) -> int | None:
    """How many rows a split has by what the hub or its cache says of it; None where they do not say it within
    SECONDS.
    """
    counts: list[int] = []

    def ask() -> None:
        from datasets import load_dataset_builder

        with suppress(Exception):  # of the network, of the hub: the stage that reads the rows says what is wrong
            counts.append(load_dataset_builder(name, config, revision=revision).info.splits[split].num_examples)

    asking = Thread(target=ask, daemon=True)  # without a network the hub's library tries again for half a minute
    asking.start()
    asking.join(SECONDS)
    return counts[0] if counts else None


def _read_json_lines(path: Path, name: str) -> Iterator[Row]:
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):  # str.splitlines splits at U+2028 as well
        if line.strip():
            where = f"{path}: line {number}"
            yield Row(_check_object(_parse_json(line, where), where), f"{name}-{number - 1}", where)


def _read_json(path: Path, name: str) -> Iterator[Row]:
    loaded = _parse_json(path.read_bytes(), str(path))
    if not isinstance(loaded, list):
        raise DataError(f"{path}: expected a list of objects; lines of objects are a .jsonl file")
    for number, value in enumerate(loaded):
        where = f"{path}: row {number}"
        yield Row(_check_object(value, where), f"{name}-{number}", where)


def _read_parquet(path: Path, name: str) -> Iterator[Row]:
    from pyarrow import ArrowException

    number = 0
    try:
        file = tables.open_parquet(path)
        _build_unique_object([(column, None) for column in file.schema_arrow.names])
        for batch in tables.iterate_record_batches(file, path):
            for values in batch.to_pylist():
                yield Row(values, f"{name}-{number}", f"{path}: row {number}")
                number += 1
    except (ArrowException, OSError, ValueError, OverflowError) as error:  # Overflow: a date that no calendar has
        raise DataError(f"{path}: cannot be read as parquet: {' '.join(str(error).split())[:200]}") from None


def _parse_json(text: bytes, where: str) -> object:
    if text.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{where}: expected UTF-8, found UTF-16")
    try:
        loaded: object = json.loads(text.removeprefix(codecs.BOM_UTF8).decode(), object_pairs_hook=_build_unique_object)
        return loaded
    except UnicodeDecodeError as error:
        position = len(text) - len(error.object) + error.start  # in the file, where a byte-order mark may come first
        raise DataError(f"{where}: expected UTF-8, found byte 0x{text[position]:02x} at {position}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: expected JSON: {error}") from None


def _build_unique_object(pairs: list[tuple[str, Any]]) -> Record:
    """The pairs as an object; a key that stands there twice would hide a value."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice; expected it once")
    return fields


def _check_object(value: object, where: str) -> Record:
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected an object with columns, got {type(value).__name__}")
    return value


def _check_encodable_text(value: object, column: str, depth: int = 0) -> None:
    if depth > DEEPEST:
        raise ValueError(f"field {column!r} is nested deeper than {DEEPEST} levels")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"field {column!r} has half a character (a surrogate), which no file can keep") from None
    if isinstance(value, dict | list):
        for inner in [*value, *value.values()] if isinstance(value, dict) else value:
            _check_encodable_text(inner, column, depth + 1)
