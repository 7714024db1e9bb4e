"""Where MLflow's records are, and the names under which the engine writes what lineage is read from.

A run of a stage has the tags `posttrain.stage`, `posttrain.key` (DVC's run-cache key), `posttrain.dep.<path>` and
`posttrain.out.<path>` (hashes as in dvc.lock) and `posttrain.outs` (all hashes of its outs, in the order of the paths).
"""

import ast
import copy
import json
import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

PREFIX = "posttrain."
BATCH = 100  # MLflow's limit of tags in one call
Entry = Mapping[str, Any]  # of one stage in dvc.lock: cmd, deps, params, outs


def uri(root: Path) -> str:
    """The address of the store, made if it is missing, as the stages know it too."""
    folder = root / "mlruns"
    folder.mkdir(exist_ok=True)
    return f"sqlite:///{folder / 'mlflow.db'}"


def open_store(root: Path) -> "MlflowClient":
    """A client of the store; its remarks about making tables stay off the screen."""
    from mlflow import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return MlflowClient(uri(root))


def experiment(client: "MlflowClient", root: Path, name: str) -> str:
    """The id of the experiment of a flow."""
    found = client.get_experiment_by_name(name)
    if found is not None:
        return found.experiment_id
    return client.create_experiment(name, artifact_location=str(root / "mlruns/artifacts"))


def newest(client: "MlflowClient", *conditions: str) -> "Iterable[Run]":
    """Finished runs that meet the conditions, in any experiment, the newest first."""
    ids = [found.experiment_id for found in client.search_experiments()]
    text = " and ".join([*conditions, "attributes.status = 'FINISHED'"])
    return client.search_runs(ids, text, order_by=["attributes.start_time DESC"], max_results=50)


def tagged(name: str, value: str) -> str:
    """The condition that a tag has a value."""
    return f"tags.`{PREFIX}{name}` = '{value}'"


def tag_name(kind: str, path: str) -> str:
    """The tag (without the prefix) for a path or stage: MLflow takes letters, digits and `_-./ :`."""
    return f"{kind}.{re.sub(r'[^A-Za-z0-9_./ :-]', ':', path)}"


def run_cache_key(entry: Entry) -> str:
    """DVC's own key of the run cache: of the command, deps, params and the paths of the outs."""
    from dvc.stage.cache import _get_cache_hash

    return _get_cache_hash(copy.deepcopy(dict(entry)), key=True)


def hashes(entry: Entry, kind: str) -> dict[str, str]:
    """Path and hash of each of an entry's `deps` or `outs`."""
    return {item["path"]: item.get("md5") or "" for item in entry.get(kind, [])}


def out_tags(entry: Entry) -> dict[str, str]:
    """The tags that say what a run made."""
    outs = hashes(entry, "outs")
    by_path = {PREFIX + tag_name("out", path): value for path, value in outs.items()}
    return {**by_path, PREFIX + "outs": joined(entry)}


def in_tags(stage: str, entry: Entry) -> dict[str, str]:
    """The tags that say what a run was made from."""
    deps = {PREFIX + tag_name("dep", path): value for path, value in hashes(entry, "deps").items()}
    return {**deps, PREFIX + "stage": stage, PREFIX + "key": run_cache_key(entry)}


def joined(entry: Entry) -> str:
    """The hashes of all outs as one text."""
    return " ".join(value for _, value in sorted(hashes(entry, "outs").items()))


def set_tags(client: "MlflowClient", run_id: str, tags: Mapping[str, str]) -> None:
    """Set several tags at once: one by one they cost 20 ms each."""
    from mlflow.entities import RunTag

    batch = [RunTag(name, value) for name, value in tags.items()]
    for begin in range(0, len(batch), BATCH):
        client.log_batch(run_id, tags=batch[begin : begin + BATCH])


def find(client: "MlflowClient", stage: str, entry: Entry) -> str | None:
    """The newest finished run that made exactly these outs by this key, adopted from plain `dvc repro` if need be."""
    for run in newest(client, tagged("key", run_cache_key(entry)), tagged("outs", joined(entry))):
        return run.info.run_id
    for md5 in hashes(entry, "outs").values():
        for run in newest(client, tagged("metrics_md5", md5)):
            tags = run.data.tags
            ours = tags.get(PREFIX + "stage") in (stage, stage.split("@")[0])
            if ours and PREFIX + "key" not in tags and _same_params(run.data.params, entry):
                adopted = {**in_tags(stage, entry), **out_tags(entry), PREFIX + "adopted": "true"}
                set_tags(client, run.info.run_id, adopted)
                return run.info.run_id
    return None


def _same_params(logged: Mapping[str, str], entry: Entry) -> bool:
    """Whether no parameter that a run logged as section.key differs from the entry's."""
    recorded: dict[str, str] = {}
    for values in entry.get("params", {}).values():
        for section, content in values.items():
            for key, value in content.items() if isinstance(content, Mapping) else [("", content)]:
                recorded[f"{section}.{key}".rstrip(".")] = str(value)
    return all(_value(recorded.get(key, value)) == _value(value) for key, value in logged.items())


def _value(text: str) -> Any:
    """A logged value as data: 1 and 1.0 are the same, and so are a tuple and a list."""
    try:
        return json.loads(json.dumps(ast.literal_eval(text)))
    except (ValueError, SyntaxError, TypeError):
        return text
