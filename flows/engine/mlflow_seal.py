"""The seal of a run: one hash over what its record holds, set when it ends, so that a later change of the record shows.

Whoever can write the database can compute a new seal too; but the seal of a pipeline run covers those of its stages,
and names the one before it, so that he would have to write all later ones anew, and a seal that was copied elsewhere
would still tell.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.engine import mlflow_run_lookup
from flows.engine.mlflow_run_lookup import PREFIX
from flows.engine.records import mlflow_artifacts

TAG = PREFIX + "seal"
RECORD = "record.json"  # the file with a run's entry of dvc.lock
LATER = PREFIX + "outs_accepted"  # what of a run's code was accepted since
OUTSIDE = (TAG, PREFIX + "merged", PREFIX + "cleaned", LATER)  # tags that begin so may come later
SHOWN = ("mlflow.parentRunId", "mlflow.source.name")  # MLflow's own tags that are covered too


def compute_run_seal(root: Path, run_id: str) -> str:
    """SHA-256 of the run's own tags, its parameters, every value of its metrics, and its record.json."""
    return hash_sealed_content(collect_sealed_content(root, run_id))


def hash_sealed_content(content: Mapping[str, Any]) -> str:
    """The seal over what a run's record holds."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def collect_sealed_content(root: Path, run_id: str) -> Mapping[str, Any]:
    """What a run's seal covers."""
    with mlflow_run_lookup.open_records_reader(root) as records:
        assert records is not None, "a run is in a database"
        tags = records.tags(run_id)
        params = records.params(run_id)
        values = sorted((point.key, point.step, point.value, point.nan) for point in records.values(run_id))
    metrics = [[key, step, repr(float(value)), nan] for key, step, value, nan in values]
    covered_tags = {key: value for key, value in tags.items() if key in SHOWN or key.startswith(PREFIX)}
    file = mlflow_artifacts.get_or_fetch_artifact_path(root, run_id, RECORD)
    return {
        "run": run_id,
        "tags": {key: value for key, value in covered_tags.items() if not key.startswith(OUTSIDE)},
        "params": params,
        "metrics": metrics,
        "record": hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None,
    }


def get_run_artifact_folder(root: Path, run_id: str) -> Path:
    """The folder of a run's files in the repository's own database."""
    return mlflow_artifacts.get_artifact_folder(root, run_id)
