"""What stages took, time and memory, by their runs in MLflow: no out may hold it, but the records do."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from flows.engine import mlflow_run_lookup
from flows.engine.mlflow_run_lookup import PEAK_MEMORY, PREFIX


def read_run_durations(root: Path, run_ids: Iterable[str], settled: bool = True) -> dict[str, float]:
    """Seconds from the start to the end of each of these runs that has ended, and is on record."""
    seconds = {}
    with mlflow_run_lookup.open_records_reader(root, settled=settled) as records:
        for run_id in run_ids if records else ():
            head = records.head(run_id) if records else None
            if head and head.ended:
                seconds[run_id] = (head.ended - head.started) / 1000
    return seconds


def read_run_peak_memory(root: Path, run_ids: Iterable[str]) -> dict[str, float]:
    """The peak resident memory, in megabytes, of each of these runs that recorded it."""
    with mlflow_run_lookup.open_records_reader(root) as records:
        peaks = {run_id: records.latest(run_id).get(PEAK_MEMORY) for run_id in run_ids} if records else {}
    return {run_id: value for run_id, value in peaks.items() if value is not None}


class PastStageRun(NamedTuple):
    """A finished run of a stage: its seconds, and its parameters by dotted key, as text."""

    seconds: float
    params: Mapping[str, str]


def read_last_stage_runs(root: Path, stages: Iterable[str]) -> dict[str, PastStageRun]:
    """Each stage's last finished run that is on record; stages that never ran are left out."""
    last: dict[str, PastStageRun] = {}
    with mlflow_run_lookup.open_records_reader(root, settled=False) as records:
        for stage in stages if records else ():
            runs = records.finished({PREFIX + "stage": stage}) if records else []
            head = records.head(runs[0][0]) if records and runs else None
            if records and head and head.ended:
                last[stage] = PastStageRun((head.ended - head.started) / 1000, records.params(runs[0][0]))
    return last
