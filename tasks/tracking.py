"""Metrics, parameters and progress of a stage's run; the only module of tasks/ that imports MLflow.

Nothing here can change an out: a stage's rows are the same whether or not anyone records them.
The coordinator passes MLFLOW_RUN_ID and MLFLOW_TRACKING_URI (log there; it owns the run's status and tags) and
POSTTRAIN_PROGRESS (a file for one JSON line `{"step": .., "total": ..}` per report). Without them, as under plain
`dvc repro`, a run is opened here, and progress goes to standard error.
"""

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
Row = Mapping[str, float]
FLUSH_SECONDS = 5.0  # log_metric costs 21 ms a value, a batch of a thousand 60 ms
BATCH = 1000  # MLflow's limit of metrics in one call
NOT_IN_NAMES = re.compile(r"[^\w./ :-]")  # MLflow refuses a metric that is named 10%BC


class Recorder:
    """Buffers one MLflow run's metrics and writes them in batches."""

    def __init__(self, client: Any, run_id: str) -> None:
        self.client, self.run_id = client, run_id
        self.pending: list[Any] = []
        self.flushed = time.monotonic()

    def add(self, row: Mapping[str, float], step: int) -> None:
        """Buffer one row of metrics at a step."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self.pending += [Metric(NOT_IN_NAMES.sub("_", name), float(value), now, step) for name, value in row.items()]
        if time.monotonic() - self.flushed > FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what is buffered."""
        for start in range(0, len(self.pending), BATCH):
            self.client.log_batch(self.run_id, metrics=self.pending[start : start + BATCH])
        self.pending, self.flushed = [], time.monotonic()


_recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)
_part: ContextVar[tuple[int, int]] = ContextVar("part", default=(0, 1))


@contextmanager
def run(flow: str, stage: str, params: Mapping[str, Any], metrics_path: Path) -> Iterator[None]:
    """Record one execution of a stage: its params, the rows that `track` drains, and its final metrics.

    `stage` is its name in dvc.yaml, with the branch, if it is one of several.
    """
    from mlflow import MlflowClient
    from mlflow.entities import Param

    client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI", "sqlite:///mlruns/mlflow.db"))
    given = os.environ.get("MLFLOW_RUN_ID")
    run_id = given or _new_run(client, flow, stage)
    recorder = Recorder(client, run_id)
    section = stage.partition("@")[0]
    client.log_batch(run_id, params=[Param(f"{section}.{key}", str(value)) for key, value in params.items()])
    token = _recorder.set(recorder)
    status = "FAILED"
    try:
        yield
        written = metrics_path.read_bytes()
        recorder.add(dict(_flatten(json.loads(written))), step=0)
        if (
            not given
        ):  # by this hash, which dvc.lock has too, the next `posttrain run` knows that this run made the outs
            client.set_tag(run_id, "posttrain.metrics_md5", hashlib.md5(written).hexdigest())
        status = "FINISHED"
    finally:
        _recorder.reset(token)
        recorder.flush()
        if not given:
            client.set_terminated(run_id, status)


def track(steps: Iterable[Row], total: int, earlier: Sequence[Row] = ()) -> list[Row]:
    """Drain an algorithm's `fit(...)`: record each row and show progress. Returns the rows, one a step.

    `earlier` has the rows of the steps before, where this run goes on with the training of one that was killed.
    """
    recorder, rows = _recorder.get(), list[Row]()
    for row in chain(earlier, progress(steps, total, before=len(earlier))):
        rows.append(row)
        if recorder is not None:
            recorder.add(row, step=len(rows))
    return rows


def progress(items: Iterable[T], total: int, every: float = 0.5, before: int = 0) -> Iterator[T]:
    """Pass items through, telling whoever watches how many of `total` are done; `before` of them were done before."""
    path = os.environ.get("POSTTRAIN_PROGRESS")
    index, parts = _part.get()
    told = 0.0
    for done, item in enumerate(items, start=before + 1):
        yield item
        if _recorder.get() is not None and (time.monotonic() - told > (every if path else 20 * every) or done == total):
            told = time.monotonic()
            step, steps = index * total + done, parts * total
            line = json.dumps({"step": step, "total": steps})
            if path:
                with Path(path).open("a") as file:
                    file.write(line + "\n")
            else:
                print(f"step {step}/{steps}", file=sys.stderr, flush=True)


@contextmanager
def part(index: int, parts: int) -> Iterator[None]:
    """Show the progress inside as that of part `index`, from 0, of `parts` equally long ones."""
    token = _part.set((index, parts))
    try:
        yield
    finally:
        _part.reset(token)


def log_table(frame: "pd.DataFrame", name: str) -> None:
    """Keep a table with the run, as MLflow's pages show it (`name` ends in .json)."""
    recorder = _recorder.get()
    if recorder is not None:
        recorder.client.log_table(recorder.run_id, frame, name)


def _new_run(client: Any, flow: str, stage: str) -> str:
    found = client.get_experiment_by_name(flow)
    artifacts = str(Path("mlruns/artifacts").absolute())
    experiment = found.experiment_id if found else client.create_experiment(flow, artifact_location=artifacts)
    return client.create_run(experiment, run_name=stage, tags={"posttrain.stage": stage}).info.run_id


def _flatten(metrics: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for key, value in metrics.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}/")
        else:
            yield prefix + key, value
