"""Metrics, parameters and progress of a stage's run; with tasks/common/mlflow_database.py the only module of tasks/
that imports MLflow.

Nothing here can change an out: a stage's rows are the same whether or not they are recorded. A stage goes on when
recording fails, and prints the failure to standard error. The coordinator passes POSTTRAIN_RECORDS (a file for one JSON
line per row; the coordinator writes them to MLflow, which is not even imported here) and POSTTRAIN_PROGRESS (a file for
one JSON line `{"step": .., "total": ..}` per report, where something trains with `"measure": "reward 0.53"`). Without
them, as under plain `dvc repro`, rows go to the run MLFLOW_RUN_ID at MLFLOW_TRACKING_URI, whose status and tags are
another's, or to one that is opened here; and progress goes to standard error.
"""

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

from tasks.common import mlflow_database, run_environment, source_code
from tasks.common.config import BRANCHES
from tasks.common.errors import WAITING
from tasks.common.mlflow_database import DatabaseError

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities import Metric

T = TypeVar("T")
Row = Mapping[str, float]
Nested = Mapping[str, "float | Nested"]
FLUSH_SECONDS = 5.0  # log_metric costs 21 ms a value, a batch of a thousand 60 ms
BATCH = 1000  # MLflow's limit of metrics in one call
MEASURES = ("reward", "return", "loss")  # of which the first that a row has is shown beside its progress
EXPERIMENTS = Path(".dvc/tmp/exps")  # where DVC makes the copies in which `dvc exp run --temp` and `--queue` run
NOT_IN_NAMES = re.compile(r"[^\w./ :-]")  # MLflow refuses a metric that is named 10%BC


class StageRun:
    """Buffers one MLflow run's metrics and writes them in batches; what could not be written waits for the next
    time.
    """

    def __init__(self, client: "MlflowClient", run_id: str) -> None:
        self.client = client
        self.run_id = run_id
        self.pending: list[Metric] = []
        self.flushed = time.monotonic()

    def add(self, row: Mapping[str, float], step: int) -> None:
        """Buffer one row of metrics at a step."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self.pending += [Metric(NOT_IN_NAMES.sub("_", name), float(value), now, step) for name, value in row.items()]
        if time.monotonic() - self.flushed > FLUSH_SECONDS:
            with suppress(DatabaseError):  # `run` says at the end if something is still missing
                self.flush()

    def flush(self) -> None:
        """Write what is buffered."""
        self.flushed = time.monotonic()
        with mlflow_database.raise_as_database_error():
            while self.pending:
                self.client.log_batch(self.run_id, metrics=self.pending[:BATCH])
                del self.pending[:BATCH]

    def table(self, frame: "pd.DataFrame", name: str) -> None:
        """Keep a table with the run."""
        self.client.log_table(self.run_id, frame, name)

    def end(self, metrics: bytes | None, waiting: bool = False) -> None:
        """Write what is left, and end the run if it is our own; `metrics` is the metrics file of a stage that
        succeeded.

        A stage that is `waiting` for people has not failed.
        """
        self.flush()
        if "MLFLOW_RUN_ID" in os.environ:
            return
        if metrics is not None:
            # by this hash, which dvc.lock has too, the next `posttrain run` knows that this run made the outs
            self.client.set_tag(self.run_id, "posttrain.metrics_md5", hashlib.md5(metrics).hexdigest())
        if waiting:
            self.client.set_tag(self.run_id, "posttrain.waiting", "for people")
        missing = "KILLED" if waiting else "FAILED"
        self.client.set_terminated(self.run_id, missing if metrics is None else "FINISHED")


class RecordsFile:
    """Appends a stage's records to a file as they come, a line each; what found no room waits for the next line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._raise_as_database_error():
            self.file = path.open("ab", buffering=0)
            self.pending = bytearray(b"\n" if _ends_within_line(path) else b"")

    def params(self, params: Mapping[str, str]) -> None:
        """Write the parameters."""
        self._write(json.dumps({"params": params}))

    def add(self, row: Mapping[str, float], step: int) -> None:
        """Write one row of metrics at a step."""
        metrics = {NOT_IN_NAMES.sub("_", name): float(value) for name, value in row.items()}
        self._write(json.dumps({"metrics": metrics, "step": step, "time": int(time.time() * 1000)}))

    def table(self, frame: "pd.DataFrame", name: str) -> None:
        """Write a table with its columns and rows, as MLflow's own file of a table has them."""
        table = frame.to_json(orient="split", index=False, date_format="iso")
        self._write(f'{{"table": {table}, "name": {json.dumps(name)}}}')

    def end(self, metrics: bytes | None, waiting: bool = False) -> None:
        """Write what found no room before; the run is ended by whoever reads the file."""
        with self.file:
            self._flush()

    def _write(self, line: str) -> None:
        self.pending += line.encode() + b"\n"
        with suppress(DatabaseError):  # `end` says if something is still missing
            self._flush()

    def _flush(self) -> None:
        with self._raise_as_database_error():
            while self.pending:
                del self.pending[: self.file.write(self.pending)]

    @contextmanager
    def _raise_as_database_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DatabaseError(f"{self.path}: {error.strerror or error}") from error


def _ends_within_line(path: Path) -> bool:
    """Whether the file ends within a line, left by a process of the same stage that was killed."""
    with path.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
        return file.read(1) not in (b"", b"\n")


Recorder = StageRun | RecordsFile
_recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)
_part: ContextVar[tuple[int, int]] = ContextVar("part", default=(0, 1))
_phase: ContextVar[str] = ContextVar("phase", default="")


@contextmanager
def record_stage_run(flow: str, stage: str, params: Mapping[str, object], metrics_path: Path) -> Iterator[None]:
    """Record one execution of a stage: its params, the rows that `track` drains, and its final metrics.

    `stage` is its name in dvc.yaml, with the branch, if it is one of several.
    """
    recorder: Recorder | None = None
    with _print_recording_faults():
        recorder = _open_recorder(flow, stage, params)
    token = _recorder.set(recorder)
    _phase.set("")
    metrics: bytes | None = None
    waiting = False
    try:
        yield
        metrics = metrics_path.read_bytes()
    except SystemExit as ended:
        waiting = ended.code == WAITING
        raise
    finally:
        _recorder.reset(token)
        if recorder is not None:
            with _print_recording_faults():
                _end_recording(recorder, metrics, waiting)


def _open_recorder(flow: str, stage: str, params: Mapping[str, object]) -> Recorder:
    """The recorder of the coordinator's run, or of a new one, with its parameters written."""
    section = stage.partition("@")[0]
    named = {key if key.startswith(f"{BRANCHES}.") else f"{section}.{key}": str(value) for key, value in params.items()}
    if records := os.environ.get("POSTTRAIN_RECORDS"):
        file = RecordsFile(Path(records))
        file.params(named)
        return file
    from mlflow.entities import Param

    client = mlflow_database.open_or_create_records_client(find_records_root())
    run_id = os.environ.get("MLFLOW_RUN_ID") or _create_run(client, flow, stage)
    client.log_batch(run_id, params=[Param(key, value) for key, value in named.items()])
    return StageRun(client, run_id)


def find_records_root() -> Path:
    """The repository whose records these are: the working folder, or where that is the copy of `dvc exp run --temp` or
    `--queue`, which DVC deletes, its origin.
    """
    origin = Path(os.environ.get("DVC_ROOT", "")).absolute()
    folder = Path.cwd()
    return origin if folder.is_relative_to((origin / EXPERIMENTS).resolve()) else folder


def _end_recording(recorder: Recorder, metrics: bytes | None, waiting: bool) -> None:
    """Write the results and end the record; `metrics` is the metrics file of a stage that succeeded."""
    if metrics is not None:
        recorder.add(dict(_flatten_metrics(json.loads(metrics))), step=0)
    recorder.end(metrics, waiting)


@contextmanager
def _print_recording_faults() -> Iterator[None]:
    """Print one line if recording fails."""
    try:
        with mlflow_database.raise_as_database_error():
            yield
    except DatabaseError as error:
        print(f"what MLflow has of this run is incomplete: {error}", file=sys.stderr, flush=True)


def run_and_record_training(steps: Iterable[Row], total: int, earlier: Sequence[Row] = ()) -> list[Row]:
    """Drain an algorithm's `fit(...)`: record each row and show progress. Returns the rows, one a step.

    `earlier` has the rows of the steps before, where this run goes on with the training of one that was killed.
    """
    recorder = _recorder.get()
    rows = list[Row]()
    for row in chain(earlier, iterate_with_progress(steps, total, before=len(earlier))):
        rows.append(row)
        if recorder is not None:
            recorder.add(row, step=len(rows))
    return rows


def iterate_with_progress(items: Iterable[T], total: int, every: float = 0.5, before: int = 0) -> Iterator[T]:
    """Pass items through, telling whoever watches how many of `total` are done; `before` of them were done before."""
    path = os.environ.get("POSTTRAIN_PROGRESS")
    index, parts = _part.get()
    last_told = 0.0
    for finished, item in enumerate(items, start=before + 1):
        yield item
        if _recorder.get() is not None and (
            time.monotonic() - last_told > (every if path else 20 * every) or finished == total
        ):
            last_told = time.monotonic()
            step = index * total + finished
            steps = parts * total
            line = json.dumps({"step": step, "total": steps, **_select_shown_measure(item)})
            if path:
                with Path(path).open("a") as file:
                    file.write(line + "\n")
            else:
                phase = _phase.get()
                print(f"{phase}{': ' if phase else ''}step {step}/{steps}", file=sys.stderr, flush=True)


def _select_shown_measure(item: object) -> dict[str, str]:
    """The number of a row that a person watches while it trains, with its name: the reward, or else the loss; nothing
    of other items.
    """
    row = item if isinstance(item, Mapping) else {}
    return next(({"measure": f"{name} {row[name]:.3g}"} for name in MEASURES if name in row), {})


@contextmanager
def show_progress_as_part(index: int, parts: int) -> Iterator[None]:
    """Show the progress within the block as that of part `index`, from 0, of `parts` equally long parts."""
    token = _part.set((index, parts))
    try:
        yield
    finally:
        _part.reset(token)


def announce_phase(name: str) -> None:
    """Print what a stage does from now on, where its progress goes to standard error; progress then has this name."""
    if _recorder.get() is not None and "POSTTRAIN_PROGRESS" not in os.environ:
        _phase.set(name)
        print(name, file=sys.stderr, flush=True)


def record_metrics(row: Row, step: int) -> None:
    """Record numbers at a step that no out may hold, such as times."""
    recorder = _recorder.get()
    if recorder is not None:
        recorder.add(row, step)


def record_table(frame: "pd.DataFrame", name: str) -> None:
    """Keep a table with the run, as MLflow's pages show it (`name` ends in .json)."""
    recorder = _recorder.get()
    if recorder is not None:
        with _print_recording_faults():
            recorder.table(frame, name)


def _create_run(client: "MlflowClient", flow: str, stage: str) -> str:
    experiment = mlflow_database.get_or_create_experiment(client, find_records_root(), flow)
    source = source_code.read_code_state(Path())
    code = {
        **mlflow_database.make_clone_tags(find_records_root()),
        **run_environment.collect_run_tags(),
        **source.tags(),
    }
    run_id: str = client.create_run(experiment, run_name=stage, tags={"posttrain.stage": stage, **code}).info.run_id
    if source.patch is not None:
        with TemporaryDirectory() as folder:
            file = Path(folder, source_code.PATCH)
            file.write_bytes(source.patch)
            client.log_artifact(run_id, str(file))
    return run_id


def _flatten_metrics(metrics: Nested, prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, value in metrics.items():
        if isinstance(value, Mapping):
            yield from _flatten_metrics(value, f"{prefix}{key}/")
        else:
            yield prefix + key, value
