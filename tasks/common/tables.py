"""Tables on disk (parquet), checked by pandera when written and when read, and curves (csv)."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pandera.errors
import pandera.pandas as pa

from tasks.common import processes
from tasks.common.errors import DataError

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyarrow.parquet import ParquetFile

MOST_PACKED = 1100  # bytes of values for a byte in a file of parquet, at most; gzip reaches 1,032
ROWS_PACKED = 50  # rows for a byte, at most; a million steps on a small graph reach 2, or 18 if all walks are equal
# bytes of values, and rows, that any file may have
ALWAYS = 2**26
MOST_ROWS = 10_000
BATCHES = 8, 256  # fewest and most rows that are unpacked at once

Record = dict[str, Any]  # one row by its columns, which the table's schema explains


class Table(pa.DataFrameModel):
    """Base of all tables: exactly the declared columns, none of them null."""

    class Config:
        """Pandera's settings."""

        strict = True
        ordered = False


def _validate_table(schema: type[Table], frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    try:
        return schema.validate(frame, lazy=True)
    except pandera.errors.SchemaErrors as error:
        cases = error.failure_cases
        first = cases.iloc[0]
        where = "" if pd.isna(first["index"]) else f", row {first['index']}"
        what = f"column {first['column']}{where}: {first['check']} fails for {first['failure_case']!r}"
        raise DataError(f"{path}: not a {schema.__name__} table: {what} ({len(cases)} failures in all)") from None


def read_table(schema: type[Table], path: Path) -> pd.DataFrame:
    """The table at `path`, validated; DataError with one line naming file, column and row."""
    open_parquet(path)
    return _validate_table(schema, pd.read_parquet(path), path)


def open_parquet(path: Path) -> "ParquetFile":
    """A file of parquet, of which nothing is unpacked; DataError where it says that it holds far more than its size.

    Millions of equal rows take some bytes. pyarrow's errors where it is none.
    """
    from pyarrow.parquet import ParquetFile

    file = ParquetFile(path)
    size = path.stat().st_size
    rows = file.metadata.num_rows
    if rows > max(MOST_ROWS, ROWS_PACKED * size):
        raise DataError(
            f"{path}: {rows:,} rows are said to be in {size:,} bytes; expected at most {ROWS_PACKED} for each"
        )
    chunks = _list_column_chunks(file)
    _check_unpacked_size(path, sum(max(chunk.total_uncompressed_size, 8 * chunk.num_values) for chunk in chunks))
    return file


def iterate_record_batches(file: "ParquetFile", path: Path) -> Iterator["RecordBatch"]:
    """The rows in small batches; DataError as soon as they have unpacked to far more than the file's size."""
    largest = max(
        (chunk.total_uncompressed_size for chunk in _list_column_chunks(file)), default=0
    )  # that one value may have
    fewest, most = BATCHES
    unpacked = 0
    for batch in file.iter_batches(max(fewest, min(most, ALWAYS // max(1, largest)))):
        unpacked += batch.nbytes
        _check_unpacked_size(path, unpacked)
        yield batch


def _list_column_chunks(file: "ParquetFile") -> list[Any]:
    """What the file says of each column of each group of rows."""
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    return [group.column(number) for group in groups for number in range(group.num_columns)]


def _check_unpacked_size(path: Path, unpacked: int) -> None:
    size = path.stat().st_size
    if unpacked > MOST_PACKED * size + ALWAYS:
        raise DataError(
            f"{path}: {unpacked:,} bytes of values are in {size:,} bytes; expected at most {MOST_PACKED:,} for each"
        )


def write_table(schema: type[Table], frame: pd.DataFrame, path: Path) -> None:
    """Validate `frame` and write it; on failure DataError with one line, and nothing is written."""
    frame = _validate_table(schema, frame.reset_index(drop=True), path)
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(path, index=False)


def make_table_frame(schema: type[Table], rows: Sequence[Record]) -> pd.DataFrame:
    """Rows as a table of the schema's columns and types, also where there are none."""
    kinds = {name: column.dtype.type for name, column in schema.to_schema().columns.items()}
    return pd.DataFrame(list(rows), columns=list(kinds)).astype(kinds)


def list_records(frame: pd.DataFrame) -> list[Record]:
    """The rows."""
    rows: list[dict[Any, Any]] = frame.to_dict("records")
    return rows


def write_curves(rows: Sequence[Mapping[str, object]], path: Path) -> None:
    """Rows of metrics as csv, numbered from step 1, for `dvc plots` and the report; no rows leave only a header.

    Of several processes the first writes them.
    """
    if not processes.is_main_process():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(list(rows), columns=None if rows else ["loss"])
    frame.insert(0, "step", range(1, len(frame) + 1))
    frame.to_csv(path, index=False)


def slice_last_tenth(steps: int) -> slice:
    """The last tenth of a curve of so many steps, at least one step: where a training has ended."""
    return slice(-max(1, steps // 10), None)


def compute_mean_row(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each number of rows that have the same ones, in the order of the first."""
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}


def compute_final_metrics(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The means of a curve's last tenth, in the order in which its rows first name them, which a resumed training
    keeps.
    """
    end = rows[slice_last_tenth(len(rows))]
    names = dict.fromkeys(name for row in rows for name in row if name in end[0])
    return {name: sum(row[name] for row in end) / len(end) for name in names}
