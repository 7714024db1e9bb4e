"""MLflow's database of another repository, read as what a stranger wrote: nothing in it is run, and no value is taken unchecked.

What a value may be is read from the tables here, which MLflow made: their types, their lengths, what may be missing.
"""

import math
import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from flows.engine.dvc_repository import PlanError

LARGEST = 2**20  # letters of a text that MLflow itself does not limit
TABLES = (
    *("experiments", "experiment_tags", "runs", "tags", "params", "metrics", "latest_metrics"),
    *("datasets", "inputs", "input_tags"),
    *("registered_models", "registered_model_tags", "registered_model_aliases", "model_versions", "model_version_tags"),
)
VERSION = "SELECT version_num FROM alembic_version"
REAL_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE%'"
Row = dict[str, object]  # by column
Values = tuple[object, ...]  # in the order of the columns


class RefusedError(Exception):
    """A run or model as it stands there cannot be taken; the text says why."""


@dataclass(frozen=True)
class Column:
    """What MLflow's table says of a column: its type, at most so many letters, whether it may be missing."""

    name: str
    kind: str
    most: int
    required: bool

    def check(self, values: Collection[object]) -> None:
        """RefusedError if a value is not what this column holds. All values at once: there are millions of them."""
        try:
            kinds = {*map(type, values)}
            if kinds == {str} and self.kind in ("VARCHAR", "TEXT"):
                texts = cast("Collection[str]", values)
                if max(map(len, texts)) <= self.most:
                    "".join(texts).encode()
                    return
        except UnicodeEncodeError:
            pass  # the bytes are no UTF-8: the loop says whose
        for value in values:
            self._check(value)

    def _check(self, value: object) -> None:
        fits: bool
        match self.kind:
            case _ if value is None:
                fits = not self.required
            case "FLOAT":
                fits = isinstance(value, int | float) and math.isfinite(value)
            case "BOOLEAN":
                fits = value in (0, 1)
            case "BIGINT" | "INTEGER":
                fits = isinstance(value, int)
            case _:
                fits = isinstance(value, str) and len(value) <= self.most and _is_unicode(value)
        if not fits:
            size = f" of {len(value)} letters" if isinstance(value, str) else ""
            limit = f", at most {self.most} letters" if self.kind == "VARCHAR" else ""
            what = "nothing" if value is None else f"{type(value).__name__}{size}"
            raise RefusedError(f"{self.name} is {what}; expected {self.kind}{limit}")


class OtherDatabase:
    """The tables of the database in `file`, open to read; `ours` is the database here, whose tables say what is expected.

    PlanError of one line where it is not MLflow's, is damaged, or has tables of another version than ours.
    """

    def __init__(self, file: Path, ours: sqlite3.Connection) -> None:
        self.file = file
        self.columns = {table: _columns(ours, table) for table in TABLES}
        with self._one_line():
            self._records = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
            try:
                self._look(ours)
            except BaseException:
                self.close()
                raise

    def _look(self, ours: sqlite3.Connection) -> None:
        for pragma in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
            self._records.execute(f"PRAGMA {pragma}")  # as SQLite advises for files of strangers
        self._records.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 64 * LARGEST)
        self._records.text_factory = lambda text: text.decode(errors="surrogateescape")
        self._records.execute("BEGIN")  # all that is read is of one moment
        if not {*TABLES, "alembic_version"} <= {name for (name,) in self._records.execute(REAL_TABLES)}:
            raise PlanError(f"{shown(self.file)}: this is not MLflow's database, or of another version of it")
        theirs, here = (records.execute(VERSION).fetchall() for records in (self._records, ours))
        if theirs != here:
            versions = " and ".join(" ".join(shown(text) for (text,) in found) for found in (theirs, here))
            raise PlanError(
                f"{shown(self.file)}: MLflow's tables there and here are of the versions {versions}; "
                "`mlflow db upgrade sqlite:///FILE` by the newer MLflow brings the older database up to it (copy it first)"
            )
        [(said,)] = self._records.execute("PRAGMA quick_check(1)").fetchall()
        if said != "ok":
            raise PlanError(f"{shown(self.file)}: the database is damaged: {shown(said)}")

    def close(self) -> None:
        """Let go of the file."""
        self._records.close()

    def rows(self, table: str, matching: Row) -> list[Row]:
        """The rows in which these columns have these values, unchecked, in an order that does not depend on the file."""
        return self.named(table, sorted(self.tuples(table, matching), key=repr))

    def tuples(self, table: str, matching: Row) -> list[Values]:
        """The same as tuples, the values in the order of `columns`: for the tables that are long."""
        with self._one_line():
            return select(self._records, self.columns[table], table, matching)

    def named(self, table: str, found: Iterable[Values]) -> list[Row]:
        """Rows with the names of their columns."""
        names = [column.name for column in self.columns[table]]
        return [dict(zip(names, row, strict=True)) for row in found]

    def run_ids(self) -> list[object]:
        """The id of every run, the oldest first; of any type."""
        with self._one_line():
            return [
                run_id for (run_id,) in self._records.execute("SELECT run_uuid FROM runs ORDER BY start_time, run_uuid")
            ]

    def count(self, table: str) -> int:
        """The number of rows of a table of which nothing is taken; 0 if there is no such table."""
        try:
            return int(self._records.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
        except sqlite3.Error:
            return 0

    def checked(self, table: str, found: list[Row]) -> list[Row]:
        """The same rows if every value is what MLflow's table holds; RefusedError names the first that is not."""
        self.check(table, [tuple(row.values()) for row in found])
        return found

    def check(self, table: str, found: Sequence[Values]) -> None:
        """The same for tuples."""
        for column, values in zip(self.columns[table], zip(*found, strict=True), strict=False):
            try:
                column.check(values)
            except RefusedError as error:
                raise RefusedError(f"{table}: {error}") from None

    @contextmanager
    def _one_line(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OverflowError) as error:
            hint = ""
            if "readonly" in str(error) or Path(f"{self.file}-journal").exists():
                hint = "; a process that was killed left it half written: `posttrain runs` there, once, mends it"
            raise PlanError(f"{shown(self.file)}: {shown(error)}{hint}") from None


def find(path: Path) -> Path:
    """The database of a repository, of its mlruns folder, or the file itself; PlanError if there is none."""
    for file in (path, path / "mlflow.db", path / "mlruns/mlflow.db"):
        if file.is_file():
            return file
    raise PlanError(f"{shown(path)}: no MLflow database; expected a repository, its mlruns folder or an mlflow.db")


def select(records: sqlite3.Connection, columns: Sequence[Column], table: str, matching: Row) -> list[Values]:
    """The rows of a table in which these columns have these values."""
    listed = ", ".join(f'"{column.name}"' for column in columns)
    where = " AND ".join(f'"{name}" = ?' for name in matching) or "1"
    return records.execute(f"SELECT {listed} FROM {table} WHERE {where}", [*matching.values()]).fetchall()


def insert(records: sqlite3.Connection, table: str, found: Sequence[Row]) -> None:
    """Write rows of one table, which must all have the same columns."""
    if found:
        write(records, table, [*found[0]], [tuple(row.values()) for row in found])


def write(records: sqlite3.Connection, table: str, names: Iterable[str], found: Iterable[Values]) -> None:
    """Write rows of these columns."""
    listed = [f'"{name}"' for name in names]
    records.executemany(f"INSERT INTO {table} ({', '.join(listed)}) VALUES ({', '.join('?' * len(listed))})", found)


def shown(value: object) -> str:
    """What a stranger wrote, as one short line without power over a terminal."""
    text = str(value)
    return (text if text.isprintable() else repr(text))[:300]


def _columns(records: sqlite3.Connection, table: str) -> list[Column]:
    found = []
    for _, name, declared, required, *_ in records.execute(f"PRAGMA table_info({table})"):
        sized = re.fullmatch(r"VARCHAR\((\d+)\)", declared)
        found.append(
            Column(name, "VARCHAR" if sized else declared, int(sized[1]) if sized else LARGEST, bool(required))
        )
    return found


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
