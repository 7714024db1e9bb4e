"""Where MLflow's records are, and the tags that the engine writes and lineage reads.

A run of a stage has the tags `posttrain.stage`, `posttrain.key` (DVC's run-cache key), `posttrain.dep.<path>` for its
data and `posttrain.out.<path>` (hashes as in dvc.lock), `posttrain.code` (one hash of all modules that it imports),
`posttrain.outs` (all hashes of its outs, in the order of the paths), and beside it the file record.json with its whole
entry of dvc.lock.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from flows.engine import dvc_lock, mlflow_run_lookup, mlflow_seal
from flows.engine.dvc_lock import Entry, get_entry_hashes, join_out_hashes
from flows.engine.dvc_stage import compute_run_cache_key, iterate_run_cache_entries
from flows.engine.journals import replay_process
from flows.engine.mlflow_run_lookup import PREFIX
from flows.engine.records import mlflow_artifacts, provenance
from flows.engine.records.provenance import Provenance
from tasks.common import mlflow_database
from tasks.common.source_code import NO_COMMIT, PATCH, CodeState

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput

RECORD = mlflow_seal.RECORD
BATCH = 100  # MLflow's limit of tags in one call
TURNS = 5  # of writing what others write at once


def open_mlflow_client_after_recording(root: Path) -> "MlflowClient":
    """A client of the store, which is created if it is missing, and has all runs that have ended; PlanError if it
    cannot be read or written.
    """
    replay_process.wait_for_recorded_runs(root)
    with mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
        return mlflow_database.open_or_create_records_client(root)


def build_mlflow_server_environ(root: Path) -> dict[str, str]:
    """The environment variables for an MLflow server over these records; `mlflow server` passes them to its workers.

    They may hold a password. PlanError where that server would upgrade the database.
    """
    with mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
        mlflow_database.check_and_repair_records(root)
    return {
        "_MLFLOW_SERVER_FILE_STORE": mlflow_database.get_tracking_address(root),
        "_MLFLOW_SERVER_ARTIFACT_ROOT": str(root / mlflow_database.ARTIFACTS),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }


def get_or_create_experiment_id(client: "MlflowClient", root: Path, name: str) -> str:
    """The id of the experiment of a flow."""
    return mlflow_database.get_or_create_experiment(client, root, name)


def format_tag_name(kind: str, path: str) -> str:
    """The tag (without the prefix) for a path or stage: MLflow takes letters, digits and `_-./ :`."""
    return f"{kind}.{re.sub(r'[^A-Za-z0-9_./ :-]', ':', path)}"


def has_outs_in_run_cache(root: Path, tags: Mapping[str, str]) -> bool:
    """Whether DVC's run cache has the outs of the run with these tags, so that they may be restored."""
    key = tags.get(PREFIX + "key")
    outs = tags.get(PREFIX + "outs")
    return bool(key and outs) and any(
        join_out_hashes(entry) == outs for entry in iterate_run_cache_entries(root, str(key))
    )


def build_out_tags(entry: Entry) -> dict[str, str]:
    """The tags that say what a run made."""
    outs = get_entry_hashes(entry, "outs")
    by_path = {PREFIX + format_tag_name("out", path): value for path, value in outs.items()}
    return {**by_path, PREFIX + "outs": join_out_hashes(entry)}


def build_input_tags(stage: str, entry: Entry) -> dict[str, str]:
    """The tags that say what a run was made from."""
    deps = {PREFIX + format_tag_name("dep", path): value for path, value in dvc_lock.get_data_hashes(entry).items()}
    code = {PREFIX + "code": dvc_lock.compute_code_hash(dvc_lock.get_code_hashes(entry))}
    return {**deps, **code, PREFIX + "stage": stage, PREFIX + "key": compute_run_cache_key(entry)}


def extract_tagged_path_hashes(tags: Mapping[str, str], kind: str) -> dict[str, str]:
    """Path and hash of each tag of a kind, `dep` or `out`."""
    start = f"{PREFIX}{kind}."
    return {name.removeprefix(start): value for name, value in tags.items() if name.startswith(start)}


def build_source_tags(source: CodeState) -> dict[str, str]:
    """The tags that say which code a run was made with."""
    shown = {} if source.commit in NO_COMMIT else {"mlflow.source.git.commit": source.commit}
    return {**shown, **source.tags()}


def save_patch_artifact(root: Path, run_id: str, source: CodeState) -> None:
    """Write the difference to the commit beside a run."""
    if source.patch is not None:
        mlflow_artifacts.save_artifact(root, run_id, PATCH, source.patch)


def save_record_artifact(root: Path, run_id: str, stage: str, entry: Entry, tags: Mapping[str, str]) -> None:
    """Write record.json beside a run: its entry of dvc.lock with the types of its parameters, its code and its
    environment.
    """
    start = PREFIX + "env."
    content = {
        "stage": stage,
        "entry": entry,
        **{
            name: tags.get(PREFIX + tag)
            for name, tag in (
                ("commit", "git_commit"),
                ("dirty", "git_dirty"),
                ("note", "git_note"),
                ("patch", "patch"),
            )
        },
        "environment": {name.removeprefix(start): value for name, value in tags.items() if name.startswith(start)},
    }
    mlflow_artifacts.save_artifact(root, run_id, RECORD, (json.dumps(content, indent=1) + "\n").encode())


def build_dataset_inputs(entry: Entry) -> "list[DatasetInput]":
    """A run's data as MLflow's datasets, with DVC's hashes as digests."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    return [
        DatasetInput(
            Dataset(name=path, digest=md5[:36], source_type="dvc", source=json.dumps({"path": path, "md5": md5})),
            [InputTag("mlflow.data.context", "input")],
        )
        for path, md5 in dvc_lock.get_data_hashes(entry).items()
    ]


def log_dataset_inputs(client: "MlflowClient", run_id: str, entry: Entry) -> None:
    """Write a run's data sets."""
    retry_on_unique_conflict(lambda: client.log_inputs(run_id, build_dataset_inputs(entry)))


def retry_on_unique_conflict(write: Callable[[], object]) -> None:
    """Write, and once more where another clone wrote the same row at that moment: MLflow looks for it, then inserts
    it.
    """
    from mlflow.exceptions import MlflowException

    for turn in range(1, TURNS + 1):
        try:
            write()
        except MlflowException as error:
            if turn == TURNS or "unique" not in str(error).lower():
                raise
        else:
            return


@contextmanager
def ignore_missing_resource() -> Iterator[None]:
    """Go on where a version is not there any more: another clone had made it beside an equal one, and has deleted
    it.
    """
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise


def seal_run(client: "MlflowClient", root: Path, run_id: str) -> None:
    """Seal a run that gets no further tags, parameters or metrics from us, and keep its record beside DVC's run
    cache.
    """
    content = mlflow_seal.collect_sealed_content(root, run_id)
    seal = mlflow_seal.hash_sealed_content(content)
    file = mlflow_artifacts.get_or_fetch_artifact_path(root, run_id, RECORD)
    if file.is_file():
        run = client.get_run(run_id)
        tags = {provenance.USER: run.data.tags.get(provenance.USER, ""), **content["tags"]}
        record = json.loads(file.read_text())
        provenance.save_provenance(root, Provenance(run_id, run.info.start_time, seal, tags, content["params"], record))
    client.set_tag(run_id, mlflow_seal.TAG, seal)


def set_run_tags(client: "MlflowClient", run_id: str, tags: Mapping[str, str]) -> None:
    """Set several tags in one call; single calls cost 20 ms each."""
    from mlflow.entities import RunTag

    batch = [RunTag(name, value) for name, value in tags.items()]
    for begin in range(0, len(batch), BATCH):
        client.log_batch(run_id, tags=batch[begin : begin + BATCH])


def log_params_and_metrics(
    client: "MlflowClient", run_id: str, params: Mapping[str, str], metrics: Mapping[str, float]
) -> None:
    """Write parameters, and metrics at step 0, in few calls."""
    from mlflow.entities import Metric, Param

    now = client.get_run(run_id).info.start_time
    rows = [Param(key, value) for key, value in params.items()]
    for begin in range(0, len(rows), BATCH):
        client.log_batch(run_id, params=rows[begin : begin + BATCH])
    numbers = [Metric(key, value, now, 0) for key, value in metrics.items()]
    for begin in range(0, len(numbers), 10 * BATCH):
        client.log_batch(run_id, metrics=numbers[begin : begin + 10 * BATCH])


def create_model_if_absent(client: "MlflowClient", name: str, description: str) -> None:
    """Make a registered model, unless another clone was faster."""
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name, description=description)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def find_or_adopt_maker_run(
    root: Path, stage: str, entry: Entry, index: mlflow_run_lookup.Index | None = None
) -> str | None:
    """The newest finished run with this key and these outs, or from which this entry was accepted; a run of plain `dvc
    repro` is adopted.

    `index` saves the search in the database where many stages are asked for.
    """
    key = compute_run_cache_key(entry)
    outs = join_out_hashes(entry)
    run_id = index.find(key, outs) if index is not None else mlflow_run_lookup.find_maker_run(root, key, outs)
    run_id = run_id or mlflow_run_lookup.find_accepted_maker_run(root, key, outs)
    if run_id is not None:
        return run_id
    clone_tags = {name.removeprefix(PREFIX): value for name, value in mlflow_database.make_clone_tags(root).items()}
    for md5 in filter(None, get_entry_hashes(entry, "outs").values()):
        for run in mlflow_run_lookup.list_finished_runs(root, {"metrics_md5": md5, **clone_tags}):
            ours = run.tags.get(PREFIX + "stage") in (stage, stage.split("@")[0])
            if ours and PREFIX + "key" not in run.tags and _has_same_params(run.params, entry):
                _adopt_dvc_run(root, run, stage, entry)
                return run.id
    return None


def _adopt_dvc_run(root: Path, run: mlflow_run_lookup.Run, stage: str, entry: Entry) -> None:
    """Give a run of plain `dvc repro` what the runs of `posttrain run` have: its inputs, its record and its seal."""
    client = open_mlflow_client_after_recording(root)
    tags = {
        **build_input_tags(stage, entry),
        **build_out_tags(entry),
        PREFIX + "adopted": "true",
        "mlflow.source.name": str(entry["cmd"]),
    }
    if PREFIX + "git_commit" not in run.tags:  # it was made by a version that did not say
        tags |= {PREFIX + "git_commit": "none", PREFIX + "git_dirty": "unknown"}
    save_record_artifact(root, run.id, stage, entry, {**run.tags, **tags})
    with mlflow_run_lookup.convert_mlflow_errors_to_plan_error():
        log_dataset_inputs(client, run.id, entry)
        set_run_tags(client, run.id, tags)
        seal_run(client, root, run.id)


def _has_same_params(logged: Mapping[str, str], entry: Entry) -> bool:
    """Whether no parameter that a run logged as section.key differs from the entry's."""
    recorded: dict[str, str] = {}
    for values in entry.get("params", {}).values():
        for section, content in values.items():
            for key, value in content.items() if isinstance(content, Mapping) else [("", content)]:
                recorded[f"{section}.{key}".rstrip(".")] = str(value)
    return all(
        _parse_logged_value(recorded.get(key, value)) == _parse_logged_value(value) for key, value in logged.items()
    )


def _parse_logged_value(text: str) -> object:
    """A logged value as data, so that 1 equals 1.0 and a tuple equals a list."""
    try:
        return json.loads(json.dumps(ast.literal_eval(text)))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return text
