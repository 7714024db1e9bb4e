"""How long stages took, by their runs in MLflow: no out may hold a time, but the records do."""

from collections.abc import Iterable
from pathlib import Path

from flows.engine import mlflow_runs
from flows.engine.mlflow_runs import PREFIX


def of_runs(root: Path, run_ids: Iterable[str]) -> dict[str, float]:
    """Seconds from the start to the end of each of these runs that has ended."""
    found = {}
    with mlflow_runs.reading(root) as records:
        for run_id in run_ids if records else ():
            head = records.head(run_id) if records else None
            if head and head.ended:
                found[run_id] = (head.ended - head.started) / 1000
    return found


def of_stages(root: Path, stages: Iterable[str]) -> dict[str, float]:
    """Seconds of each stage's last finished run; stages that never ran are left out."""
    last: dict[str, str] = {}
    with mlflow_runs.reading(root) as records:
        for stage in stages if records else ():
            runs = records.finished({PREFIX + "stage": stage}) if records else []
            if runs:
                last[stage] = runs[0][0]
    seconds = of_runs(root, last.values())
    return {stage: seconds[run_id] for stage, run_id in last.items() if run_id in seconds}
