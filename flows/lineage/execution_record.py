"""What executions of stages read and made, from wherever it is written down: dvc.lock, a git revision of it, or the
runs in MLflow.

MLflow keeps a run's parameters as texts; the file `record.json` beside the run has the whole entry of dvc.lock, with
types.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from flows.engine import dvc_lock, mlflow_client, mlflow_run_lookup
from flows.engine.dvc_lock import LOCKFILE, Entry
from flows.engine.dvc_repository import PlanError, convert_dvc_errors_to_plan_error
from flows.engine.dvc_stage import iterate_run_cache_entries
from flows.engine.mlflow_run_lookup import PREFIX
from flows.engine.records import mlflow_artifacts, provenance
from flows.lineage.acceptance import acceptance_runs as acceptance
from flows.lineage.acceptance.acceptance_runs import AcceptanceStep
from flows.lineage.history import PipelineRun
from tasks.common import source_code
from tasks.common.source_code import PATCH, GitError


@dataclass(frozen=True)
class ExecutionRecord:
    """What one execution of a stage read and made. What is not known of it is None."""

    stage: str
    entry: Entry  # as in dvc.lock: cmd, deps, params, outs
    run_id: str | None = None
    started: datetime | None = None
    commit: str | None = None
    dirty: str | None = None  # "no", or the files that differed from the commit
    note: str = ""  # what of commit and files is not on record, and why
    patch: Path | None = None  # where the tree was dirty: the kept difference to the commit
    environment: Mapping[str, str] = field(default_factory=dict)  # versions of packages, the machine
    elsewhere: str = ""  # who made it, where only the record that came with the result tells of the run
    accepted: tuple[
        AcceptanceStep, ...
    ] = ()  # how dvc.lock's entry came to differ from `entry` without an execution, the last step first

    @property
    def recorded(self) -> Entry:
        """The entry as dvc.lock has it: `entry`, with what was accepted since."""
        return self.accepted[0].after if self.accepted else self.entry


def load_current_records(root: Path) -> dict[str, ExecutionRecord]:
    """What dvc.lock records of each stage, with the run that made it where one is known."""
    with convert_dvc_errors_to_plan_error():
        entries = dvc_lock.read_lock_entries(root)
    return _attach_run_records(root, entries)


def load_records_at_revision(root: Path, revision: str) -> dict[str, ExecutionRecord]:
    """The same of dvc.lock as it was at a git revision; PlanError where there is none, with git's own reason."""
    try:
        text = source_code.read_git_output(root, "show", "--end-of-options", f"{revision}:./{LOCKFILE}").decode(
            errors="replace"
        )
    except GitError as error:
        raise PlanError(f"{revision}: not a git revision with a {LOCKFILE} (git: {error})") from None
    with convert_dvc_errors_to_plan_error():
        entries = dvc_lock.parse_lock_entries(text, f"{revision}:{LOCKFILE}")
    return _attach_run_records(root, entries)


def load_pipeline_records(root: Path, pipeline: PipelineRun) -> dict[str, ExecutionRecord]:
    """What the stages of a pipeline run read and made, those included that it found up to date or restored."""
    return {stage: load_run_record(root, run_id) for stage, run_id in pipeline.runs.items()}


def load_run_record(root: Path, run_id: str) -> ExecutionRecord:
    """What one run of a stage read and made; PlanError if there is no such run."""
    with mlflow_run_lookup.open_records_reader(root) as records:
        head = records.head(run_id) if records else None
        tags = records.tags(run_id) if records and head else {}
        started = head.started if head else 0
    elsewhere = ""
    if head is None and (carried := provenance.find_run_provenance(root, run_id)) is not None:
        tags = dict(carried.tags)
        started = carried.started
        elsewhere = carried.tags.get(provenance.USER) or "somebody"
    if PREFIX + "stage" not in tags:
        raise PlanError(f"{run_id}: no run of a stage has this id")
    content = load_valid_record_json(root, run_id)
    return ExecutionRecord(
        tags[PREFIX + "stage"],
        content.get("entry") or _rebuild_lock_entry(root, tags),
        run_id,
        datetime.fromtimestamp(started / 1000),
        tags.get(PREFIX + "git_commit"),
        tags.get(PREFIX + "git_dirty"),
        tags.get(PREFIX + "git_note", ""),
        _find_patch_file(root, run_id, tags),
        {name.removeprefix(PREFIX + "env."): value for name, value in tags.items() if name.startswith(PREFIX + "env.")},
        elsewhere,
    )


def find_or_adopt_producing_run_id(
    root: Path, stage: str, entry: Entry, index: mlflow_run_lookup.Index | None = None
) -> str | None:
    """The run that made this entry of dvc.lock: one of MLflow's, or else one whose record came with the result."""
    run_id = mlflow_client.find_or_adopt_maker_run(root, stage, entry, index)
    if run_id is None:
        steps = acceptance.list_acceptance_steps(root, stage, entry, index)
        if steps:  # the acceptance may have come from another clone, and the run that it is about be this one's
            entry = steps[-1].before
            run_id = mlflow_client.find_or_adopt_maker_run(root, stage, entry, index)
    if run_id is None:
        records = mlflow_run_lookup.filter_records_not_in_mlflow(root, provenance.load_entry_provenance(root, entry))
        run_id = next((carried.run_id for carried in records if carried.entry), None)
    return run_id


def _attach_run_records(root: Path, entries: Mapping[str, Entry]) -> dict[str, ExecutionRecord]:
    index = mlflow_run_lookup.Index(root)
    records = {}
    for stage, entry in entries.items():
        run_id = find_or_adopt_producing_run_id(root, stage, entry, index)
        made = load_run_record(root, run_id) if run_id else ExecutionRecord(stage, entry)
        steps = acceptance.list_acceptance_steps(root, stage, entry, index)
        entry = steps[-1].before if steps else entry
        records[stage] = ExecutionRecord(**{**vars(made), "stage": stage, "entry": entry, "accepted": steps})
    return records


def load_valid_record_json(root: Path, run_id: str) -> dict[str, Any]:
    """The run's record.json; nothing if it has none, or one that is torn or has other types than the engine writes.

    Of a run that MLflow does not have it is the one that came with the result.
    """
    content = acceptance.load_record_json(root, run_id)
    return content if isinstance(content, dict) and _is_valid_record(content) else {}


def _is_valid_record(content: Mapping[str, Any]) -> bool:
    """Whether the parts of a record.json have the types that readers rely on; anybody may have written the file."""
    entry = content.get("entry")
    environment = content.get("environment") or {}
    texts = (
        content.get("stage"),
        content.get("commit"),
        content.get("dirty"),
        content.get("note"),
        content.get("patch"),
    )
    if not isinstance(entry, dict) or not isinstance(environment, dict):
        return False
    files = [entry.get("deps") or [], entry.get("outs") or []]
    params = entry.get("params") or {}
    return (
        all(isinstance(text, str | None) for text in texts)
        and all(isinstance(listed, list) for listed in files)
        and all(
            isinstance(dep_or_out, dict) and isinstance(dep_or_out.get("path"), str)
            for listed in files
            for dep_or_out in listed
        )
        and all(isinstance(dep_or_out.get("md5"), str | None) for listed in files for dep_or_out in listed)
        and isinstance(params, dict)
        and all(isinstance(values, dict) for values in params.values())
    )


def _rebuild_lock_entry(root: Path, tags: Mapping[str, str]) -> Entry:
    """The entry of a run that has no record.json: DVC's run cache may have it, and the tags have the paths and
    hashes.
    """
    key = tags.get(PREFIX + "key", "")
    outs = tags.get(PREFIX + "outs")
    for entry in iterate_run_cache_entries(root, key) if key else ():
        if dvc_lock.join_out_hashes(entry) == outs:
            return entry
    listed = {kind: mlflow_client.extract_tagged_path_hashes(tags, kind) for kind in ("dep", "out")}
    return {
        "cmd": tags.get("mlflow.source.name", ""),
        **{f"{kind}s": [{"path": path, "md5": md5} for path, md5 in paths.items()] for kind, paths in listed.items()},
    }


def _find_patch_file(root: Path, run_id: str, tags: Mapping[str, str]) -> Path | None:
    """The file with the difference to the commit: the run's own, or that of its pipeline run."""
    if PREFIX + "patch" not in tags:
        return None
    owners = filter(None, (run_id, tags.get("mlflow.parentRunId")))
    files = (mlflow_artifacts.get_or_fetch_artifact_path(root, owner, PATCH) for owner in owners)
    return next((file for file in files if file.is_file()), None)
