"""Writes what a stage recorded to its run in MLflow: as it comes, and to the end before the stage's outs count.

A stage leaves its records in a file, one JSON object a line (tasks/common/tracking.py): {"params": {name: text}},
{"metrics": {name: number}, "step": n, "time": milliseconds} or {"table": {"columns": [..], "data": [[..], ..]}, "name":
"x.json"}. The command may be anyone's, so a line that is none of these, or that MLflow refuses, is passed over and told
of.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from mlflow import MlflowClient, MlflowException
from mlflow.entities import Metric, Param
from mlflow.utils.mlflow_tags import MLFLOW_LOGGED_ARTIFACTS
from mlflow.utils.validation import _validate_metric

from flows.engine import mlflow_run_lookup
from flows.engine.dvc_repository import PlanError

SECONDS = 3.0  # between two looks for new rows
# MLflow's limits of metrics and of parameters in one call
BATCH = 1000
PARAMS = 100
INTEGER = 2**63  # a step or time beyond it fits no database
REFUSED = "INVALID_PARAMETER_VALUE"  # MLflow's code for what it will never take
NOT_IN_PATHS = frozenset("\"',:[]{}\\\0")
SHOWN = 200  # characters shown of what is wrong with a line
EXPECTED = 'expected {"params": ..}, {"metrics": .., "step": .., "time": ..} or {"table": .., "name": ..}'


@dataclass(frozen=True)
class MetricStep:
    """Metrics of one step."""

    metrics: Sequence[Metric]


@dataclass(frozen=True)
class Params:
    """Parameters of the stage."""

    params: Sequence[Param]


@dataclass(frozen=True)
class RunTable:
    """A table that is kept with the run under a path that ends in .json."""

    columns: list[Any]
    data: list[list[Any]]
    name: str


class Rows:
    """Follows the records file of one execution of a stage, which only grows. Several threads may share it."""

    def __init__(self, client: MlflowClient, run_id: str, file: Path, database: Lock) -> None:
        self.client = client
        self.run_id = run_id
        self.file = file
        self._database = database  # all stages take turns in it: SQLite has one writer
        self._writing = Lock()
        self._ended = Event()
        self._bytes = self._lines = 0  # how much of the file is in MLflow or was passed over
        self._tables = dict[str, RunTable]()
        # lines passed over, the last of them, the first with its fault
        self._bad = 0
        self._judged = 0
        self._first = ""

    def follow(self) -> None:
        """Write what comes, in a thread of its own, so that a slow MLflow holds up nothing else."""
        Thread(target=self._write_lines_until_ended, name=f"rows of {self.file.stem}", daemon=True).start()

    def write(self) -> None:
        """Write every whole line that is new; PlanError of one line if MLflow fails, and the rest waits for the next
        call.
        """
        with self._writing:
            if not self._ended.is_set():
                self._write_unread_lines()

    def finish(self) -> None:
        """Write what is left, and nothing more after that; PlanError of one line if something is missing in MLflow
        then.
        """
        self._ended.set()
        with self._writing:
            self._write_unread_lines()
        if self._bad:
            others = f", and {self._bad - 1} more" if self._bad > 1 else ""
            raise PlanError(f"{self.file.name}: passed over {self._first}{others}")

    def _write_lines_until_ended(self) -> None:
        while not self._ended.wait(SECONDS):
            with suppress(PlanError):  # `finish` says if something is missing in the end
                self.write()

    def _write_unread_lines(self) -> None:
        metrics = list[Metric]()
        end = self._bytes
        number = self._lines
        for line in self._iterate_complete_lines():
            try:
                record = _parse_record_line(line)
            except (ValueError, OverflowError, RecursionError, MlflowException) as error:
                self._record_skipped_line(number + 1, error)
                record = MetricStep([])
            if isinstance(record, MetricStep):
                metrics += record.metrics
            else:
                self._log_metrics(metrics, end, number)
                self._log_params_or_table(record, number + 1)
            end = end + len(line)
            number = number + 1
            if len(metrics) >= BATCH or not isinstance(record, MetricStep):
                self._log_metrics(metrics, end, number)
        self._log_metrics(metrics, end, number)

    def _iterate_complete_lines(self) -> Iterator[bytes]:
        """The lines not yet written; a last one without its end is still being written by the stage."""
        try:
            with self.file.open("rb") as file:
                file.seek(self._bytes)
                for line in file:
                    if line.endswith(b"\n"):
                        yield line
        except OSError as error:
            raise PlanError(f"{self.file.name}: {error.strerror or error}") from error

    def _log_metrics(self, metrics: list[Metric], end: int, number: int) -> None:
        """Write these metrics; then the file is done up to byte `end`, the end of line `number`."""
        for begin in range(0, len(metrics), BATCH):
            with self._hold_database_lock():
                self.client.log_batch(self.run_id, metrics=metrics[begin : begin + BATCH])
        metrics.clear()
        self._bytes = end
        self._lines = number

    def _log_params_or_table(self, record: Params | RunTable, number: int) -> None:
        """Write parameters, or a table, which gets one attempt: its path may be one that the disk does not take."""
        if isinstance(record, RunTable):
            try:
                self._log_table(record)
            except (ValueError, PlanError) as error:
                self._record_skipped_line(number, error)
            return
        for begin in range(0, len(record.params), PARAMS):
            with self._hold_database_lock():
                try:
                    self.client.log_batch(self.run_id, params=record.params[begin : begin + PARAMS])
                except MlflowException as error:
                    if error.error_code != REFUSED:
                        raise
                    self._record_skipped_line(number, error)

    def _log_table(self, table: RunTable) -> None:
        """Write a table as MLflow's log_table does, rows of the same name after those before; that would need data
        frames.
        """
        before = self._tables.get(table.name, RunTable(table.columns, [], table.name))
        if before.columns != table.columns:
            raise ValueError(f"table {table.name!r}: expected the columns that it had before")
        self._tables[table.name] = whole = RunTable(table.columns, [*before.data, *table.data], table.name)
        with self._hold_database_lock():
            text = json.dumps({"columns": whole.columns, "data": whole.data})
            self.client.log_text(self.run_id, text, whole.name)
            shown = json.loads(self.client.get_run(self.run_id).data.tags.get(MLFLOW_LOGGED_ARTIFACTS, "[]"))
            entry = {"path": whole.name, "type": "table"}
            if entry not in shown:
                self.client.set_tag(self.run_id, MLFLOW_LOGGED_ARTIFACTS, json.dumps([*shown, entry]))

    @contextmanager
    def _hold_database_lock(self) -> Iterator[None]:
        """The database for one call; every fault of it is a PlanError."""
        with self._database, mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
            yield

    def _record_skipped_line(self, number: int, error: Exception) -> None:
        if number > self._judged:  # a line is read again after a fault of MLflow
            message = "".join(char for char in str(error).partition("\n")[0] if char.isprintable())[:SHOWN]
            self._first = self._first or f"line {number}: {message}"
            self._bad = self._bad + 1
            self._judged = number


def _parse_record_line(line: bytes) -> MetricStep | Params | RunTable:
    """What a line says; ValueError, OverflowError, RecursionError or MlflowException if it says nothing that MLflow
    takes.
    """
    match json.loads(line):
        case {"metrics": dict(metrics), "step": int(step), "time": int(time)}:
            return MetricStep([_parse_metric(name, value, time, step) for name, value in metrics.items()])
        case {"params": dict(params)}:
            return Params([_parse_param(name, value) for name, value in params.items()])
        case {"table": {"columns": list(columns), "data": list(data)}, "name": str(name)}:
            if not _is_valid_table_path(name):
                raise ValueError(f"table {name!r}: expected a path below the run's files that ends in .json")
            if not all(isinstance(row, list) and len(row) == len(columns) for row in data):
                raise ValueError(f"table {name!r}: expected rows with a value for each of {len(columns)} columns")
            return RunTable(columns, data, name)
    raise ValueError(EXPECTED)


def _parse_metric(name: str, value: object, time: int, step: int) -> Metric:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"metric {name!r}: expected a number, got {value!r}")
    if isinstance(step, bool) or not -INTEGER <= step < INTEGER or not 0 <= time < INTEGER:
        raise ValueError(f"metric {name!r}: expected a step and a time in milliseconds, got {step!r} and {time!r}")
    _validate_metric(name, float(value), time, step)
    return Metric(name, float(value), time, step)


def _parse_param(name: str, value: object) -> Param:
    if not isinstance(value, str):
        raise ValueError(f"parameter {name!r}: expected text, got {value!r}")
    value.encode()  # half of a surrogate pair fits no database
    return Param(name, value)


def _is_valid_table_path(name: str) -> bool:
    parts = name.split("/")
    plain = not NOT_IN_PATHS.intersection(name) and not {"", ".", ".."}.intersection(parts)
    return plain and name.endswith(".json") and name.isprintable()
