"""Where MLflow's records are, and the tags that the engine writes and lineage reads.

A run of a stage has the tags `posttrain.stage`, `posttrain.key` (DVC's run-cache key), `posttrain.dep.<path>` and
`posttrain.out.<path>` (hashes as in dvc.lock) and `posttrain.outs` (all hashes of its outs, in the order of the paths).
"""

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flows.engine import mlflow_runs
from flows.engine.dvc_lock import Entry, hashes, joined
from flows.engine.dvc_stage import cached_entries, run_cache_key
from flows.engine.mlflow_runs import PREFIX
from tasks.common import mlflow_database

if TYPE_CHECKING:
    from mlflow import MlflowClient

BATCH = 100  # MLflow's limit of tags in one call


def open_store(root: Path) -> "MlflowClient":
    """A client of the store, which is created if it is missing; PlanError if it cannot be read or written."""
    with mlflow_runs.one_line():
        return mlflow_database.open_client(root)


def server_store(root: Path) -> dict[str, str]:
    """The environment variables for an MLflow server over these records; `mlflow server` passes them to its workers."""
    return {
        "_MLFLOW_SERVER_FILE_STORE": mlflow_database.address(root),
        "_MLFLOW_SERVER_ARTIFACT_ROOT": str(root / mlflow_database.ARTIFACTS),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }


def experiment(client: "MlflowClient", root: Path, name: str) -> str:
    """The id of the experiment of a flow."""
    found = client.get_experiment_by_name(name)
    if found is not None:
        return found.experiment_id
    return client.create_experiment(name, artifact_location=str(root / mlflow_database.ARTIFACTS))


def tag_name(kind: str, path: str) -> str:
    """The tag (without the prefix) for a path or stage: MLflow takes letters, digits and `_-./ :`."""
    return f"{kind}.{re.sub(r'[^A-Za-z0-9_./ :-]', ':', path)}"


def in_run_cache(root: Path, tags: Mapping[str, str]) -> bool:
    """Whether DVC's run cache has the outs of the run with these tags, so that they may be restored."""
    key, outs = tags.get(PREFIX + "key"), tags.get(PREFIX + "outs")
    return bool(key and outs) and any(joined(entry) == outs for entry in cached_entries(root, str(key)))


def out_tags(entry: Entry) -> dict[str, str]:
    """The tags that say what a run made."""
    outs = hashes(entry, "outs")
    by_path = {PREFIX + tag_name("out", path): value for path, value in outs.items()}
    return {**by_path, PREFIX + "outs": joined(entry)}


def in_tags(stage: str, entry: Entry) -> dict[str, str]:
    """The tags that say what a run was made from."""
    deps = {PREFIX + tag_name("dep", path): value for path, value in hashes(entry, "deps").items()}
    return {**deps, PREFIX + "stage": stage, PREFIX + "key": run_cache_key(entry)}


def set_tags(client: "MlflowClient", run_id: str, tags: Mapping[str, str]) -> None:
    """Set several tags in one call; single calls cost 20 ms each."""
    from mlflow.entities import RunTag

    batch = [RunTag(name, value) for name, value in tags.items()]
    for begin in range(0, len(batch), BATCH):
        client.log_batch(run_id, tags=batch[begin : begin + BATCH])


def find(root: Path, stage: str, entry: Entry) -> str | None:
    """The newest finished run with this key and these outs; a run of plain `dvc repro` without a key is tagged with it."""
    for run in mlflow_runs.finished(root, {"key": run_cache_key(entry), "outs": joined(entry)}):
        return run.id
    for md5 in filter(None, hashes(entry, "outs").values()):
        for run in mlflow_runs.finished(root, {"metrics_md5": md5}):
            ours = run.tags.get(PREFIX + "stage") in (stage, stage.split("@")[0])
            if ours and PREFIX + "key" not in run.tags and _same_params(run.params, entry):
                adopted = {**in_tags(stage, entry), **out_tags(entry), PREFIX + "adopted": "true"}
                set_tags(open_store(root), run.id, adopted)
                return run.id
    return None


def _same_params(logged: Mapping[str, str], entry: Entry) -> bool:
    """Whether no parameter that a run logged as section.key differs from the entry's."""
    recorded: dict[str, str] = {}
    for values in entry.get("params", {}).values():
        for section, content in values.items():
            for key, value in content.items() if isinstance(content, Mapping) else [("", content)]:
                recorded[f"{section}.{key}".rstrip(".")] = str(value)
    return all(_value(recorded.get(key, value)) == _value(value) for key, value in logged.items())


def _value(text: str) -> object:
    """A logged value as data, so that 1 equals 1.0 and a tuple equals a list."""
    try:
        return json.loads(json.dumps(ast.literal_eval(text)))
    except (ValueError, SyntaxError, TypeError):
        return text
