"""What a person names when asking where something comes from: an output, a stage, a run, a model version, a hash or a
metric.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Any

from flows.engine import dvc_lock, mlflow_run_lookup
from flows.engine.dvc_lock import Entry, read_lock_entries
from flows.engine.dvc_repository import PlanError, convert_dvc_errors_to_plan_error
from flows.engine.mlflow_run_lookup import PREFIX, Index
from flows.engine.records import provenance
from flows.lineage import execution_record, history
from flows.lineage.cache_objects import MD5
from flows.lineage.history import EVALUATIONS, SHORTEST
from tasks.common import mlflow_address

RUN = re.compile(rf"[0-9a-f]{{{SHORTEST},32}}")
MODEL = re.compile(r"(?:models:/)?(?P<name>[^@]+?)(?:/(?P<version>\d+)|@(?P<alias>[\w-]+))")
EXPECTED = (
    "expected an output's path, a stage, a run, a model version (language.grpo@best), a hash, or a metric "
    "('grpo strict_greedy')"
)


@dataclass(frozen=True)
class LineageTarget:
    """One output, by its path and hash; what else is known of what was asked for is set."""

    path: str
    hash: str
    stage: str | None = None
    run_id: str | None = None  # where a run or a model version was named
    pipeline_id: str | None = None  # where a pipeline run was named
    metric: tuple[str, float] | None = None  # its name and value


def resolve_lineage_target(root: Path, text: str) -> LineageTarget:
    """What `text` names; PlanError of one line if nothing is named so."""
    with convert_dvc_errors_to_plan_error():
        entries = read_lock_entries(root)
    for look in (
        _find_stage_target,
        _find_path_target,
        _find_run_target,
        _find_hash_target,
        _find_model_target,
        _find_metric_target,
    ):
        if (target := look(root, text.strip(), entries)) is not None:
            return target
    if not entries:
        raise PlanError(f"{text}: nothing has run here yet; `posttrain run` makes the first results")
    close = get_close_matches(text, [*entries, *_index_recorded_outputs(entries)], n=1)
    raise PlanError(f"{text}: {f'did you mean {close[0]}?' if close else f'nothing here is named so; {EXPECTED}'}")


def _index_recorded_outputs(entries: Mapping[str, Entry]) -> dict[str, tuple[str, str]]:
    """Path -> stage and hash of every out that dvc.lock records."""
    return {
        path: (name, md5)
        for name, entry in entries.items()
        for path, md5 in dvc_lock.get_entry_hashes(entry, "outs").items()
    }


def get_largest_output_path(entry: Entry) -> str:
    """The path of the largest out, which stands for a stage."""
    path: str = max(entry["outs"], key=lambda out: out.get("size", 0))["path"]
    return path


def _find_stage_target(root: Path, text: str, entries: Mapping[str, Entry]) -> LineageTarget | None:
    if text not in entries:
        return None
    if not entries[text].get("outs"):
        raise PlanError(f"dvc.lock: stage '{text}' has no outs")
    path = get_largest_output_path(entries[text])
    return LineageTarget(path, dvc_lock.get_entry_hashes(entries[text], "outs")[path], text)


def _find_path_target(root: Path, text: str, entries: Mapping[str, Entry]) -> LineageTarget | None:
    """An out, or a path within one, relative to the current folder or to the repository; or a raw input."""
    outs = _index_recorded_outputs(entries)
    for full_path in (
        Path(os.path.normpath(Path(text).absolute())),
        Path(os.path.normpath(root / text)),
    ):  # without `..`
        if full_path.is_relative_to(root):
            path = PurePosixPath(full_path.relative_to(root).as_posix())
            for candidate in (path, *path.parents):
                if str(candidate) in outs:
                    stage, md5 = outs[str(candidate)]
                    return LineageTarget(str(candidate), md5, stage)
            for entry in entries.values():
                if str(path) in (deps := dvc_lock.get_entry_hashes(entry, "deps")):
                    return LineageTarget(str(path), deps[str(path)])
    return None


def _find_run_target(root: Path, text: str, entries: Mapping[str, Entry]) -> LineageTarget | None:
    """A run of a stage or of a pipeline, by its id or by the only one that begins so."""
    if not RUN.fullmatch(text):
        return None
    with mlflow_run_lookup.open_records_reader(root) as records:
        run_ids = records.beginning(text) if records else []
        tags = records.tags(run_ids[0]) if records and len(run_ids) == 1 else {}
    run_ids = run_ids or [
        carried.run_id for carried in provenance.iterate_provenance_by_prefix(root, text) if carried.entry
    ]
    if len(run_ids) > 1:
        raise PlanError(f"{text}: more than one run begins so; give more letters")
    if not run_ids:
        return None
    [run_id] = run_ids
    if PREFIX + "flow" in tags:
        pipeline = history.get_pipeline_run(root, run_id)
        if not pipeline.runs:
            raise PlanError(f"{run_id}: this pipeline run has no result on record")
        last = next((name for name in pipeline.runs if name.endswith("report")), [*pipeline.runs][-1])
        return _make_run_target(root, pipeline.runs[last], run_id)
    return _make_run_target(root, run_id)


def _make_run_target(root: Path, run_id: str, pipeline_id: str | None = None) -> LineageTarget:
    made = execution_record.load_run_record(root, run_id)
    if not made.entry.get("outs"):
        raise PlanError(f"{run_id}: this run of {made.stage} made no outs: it failed, or was stopped")
    path = get_largest_output_path(made.entry)
    return LineageTarget(path, dvc_lock.get_entry_hashes(made.entry, "outs")[path], made.stage, run_id, pipeline_id)


def _find_hash_target(root: Path, text: str, entries: Mapping[str, Entry]) -> LineageTarget | None:
    if not MD5.fullmatch(text):
        return None
    for path, (stage, md5) in _index_recorded_outputs(entries).items():
        if md5 == text:
            return LineageTarget(path, md5, stage)
    for run_id in Index(root).makers(text):
        made = execution_record.load_run_record(root, run_id)
        for path, md5 in dvc_lock.get_entry_hashes(made.entry, "outs").items():
            if md5 == text:
                return LineageTarget(path, md5, made.stage, run_id)
    for entry in entries.values():
        for path, md5 in dvc_lock.get_entry_hashes(entry, "deps").items():
            if md5 == text:
                return LineageTarget(path, md5)
    raise PlanError(f"{mlflow_address.describe_records_address()}: no finished run made {text}")


def _find_model_target(root: Path, text: str, entries: Mapping[str, Entry]) -> LineageTarget | None:
    """A version of a registered model, by its number or an alias."""
    named = MODEL.fullmatch(text)
    if named is None:
        return None
    name = named["name"]
    version = named["version"]
    alias = named["alias"]
    with mlflow_run_lookup.open_records_reader(root) as records:
        model = records.model(name) if records else None
    if model is None:
        return None
    version = model.aliases.get(alias) if alias else version
    run_id = model.runs.get(version or "")
    path = model.tags.get(version or "", {}).get(PREFIX + "path")
    if not run_id:
        return None
    target = _make_run_target(root, run_id)
    outs = dvc_lock.get_entry_hashes(execution_record.load_run_record(root, run_id).entry, "outs")
    return LineageTarget(path, outs[path], target.stage, run_id) if path in outs else target


def _find_metric_target(root: Path, text: str, entries: Mapping[str, Entry]) -> LineageTarget | None:
    """`grpo strict_mean@8_t0.5` or `rooms-ppo/return`: a number of a policy's evaluation, or of the stage itself."""
    stage, _, name = re.sub(r"[\s/]+", " ", text).partition(" ")
    metrics = {
        measuring_stage: (path, md5, numbers)
        for measuring_stage in (*(f"{kind}@{stage}" for kind in EVALUATIONS), stage)
        for path, md5 in dvc_lock.get_entry_hashes(entries.get(measuring_stage, {}), "outs").items()
        if path.endswith(".json") and (numbers := dict(_iterate_file_metrics(root / path)))
    }
    if not metrics or not name:
        return None
    for measuring_stage, (path, md5, numbers) in metrics.items():
        for metric, value in numbers.items():
            if _normalize_metric_name(metric) in (_normalize_metric_name(name), _normalize_metric_name(f"{name} mean")):
                return LineageTarget(path, md5, measuring_stage, metric=(metric, value))
    all_known = [candidate for _, _, numbers in metrics.values() for candidate in numbers]
    plain = [candidate for candidate in all_known if not candidate.endswith(("/low", "/high"))]
    close = [
        candidate for candidate in plain if _normalize_metric_name(candidate).startswith(_normalize_metric_name(name))
    ] or get_close_matches(name, all_known, n=3)
    hint = (
        f"did you mean {' or '.join(dict.fromkeys(candidate.removesuffix('/mean') for candidate in close[:6]))}?"
        if close
        else ""
    )
    raise PlanError(f"{stage} has no metric {name}; {hint or 'the pages of docs/metrics list them'}")


def _normalize_metric_name(name: str) -> str:
    """A metric's name as it may be typed: strict_mean@8 for strict_mean_at_8."""
    return re.sub(r"[\s/_]+", "_", name.replace("@", "_at_")).lower()


def _iterate_file_metrics(file: Path) -> Iterator[tuple[str, float]]:
    def below(value: Any, name: str) -> Iterator[tuple[str, float]]:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                yield from below(inner, f"{name}/{key}" if name else str(key))
        elif isinstance(value, int | float):
            yield name, float(value)

    with suppress(OSError, ValueError):
        yield from below(json.loads(file.read_text()), "")
