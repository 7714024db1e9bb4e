"""What people's new judgements changed: pairs, the reward model's accuracy and the policies, before a run and after
it.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flows.engine import dvc_lock
from flows.engine.dvc_lock import read_lock_entries
from flows.engine.dvc_repository import PlanError
from flows.engine.stage_types import PlannedStage, StageResult
from flows.lineage import execution_record
from flows.lineage.comparison import evaluation_comparison
from flows.lineage.comparison.comparing import find_training_stage
from flows.lineage.comparison.evaluation_comparison import Compared
from flows.lineage.comparison.sides import Side
from flows.lineage.execution_record import ExecutionRecord

STAGE = "preferences"
MEASURED = (STAGE, "reward_model")  # whose metrics are shown before and after
Metrics = Mapping[str, Any]


@dataclass(frozen=True)
class Before:
    """What dvc.lock and the files of metrics said before a run."""

    records: Mapping[str, ExecutionRecord]
    metrics: Mapping[str, Metrics]


@dataclass(frozen=True)
class Changed:
    """Metrics of the stages before and after, the policies that can be compared, and what else than judgements
    changed.
    """

    before: Mapping[str, Metrics]
    after: Mapping[str, Metrics]
    policies: Sequence[Compared] = ()
    same: Sequence[str] = ()  # policies whose models are byte for byte those of before
    besides: Mapping[str, str] = field(default_factory=dict)  # stage -> why it ran, where that is not the judgements


def capture_state_before_run(root: Path, planned: Sequence[PlannedStage]) -> Before | None:
    """What there is before the run, if `preferences` may run in it."""
    if not any(stage.name == STAGE and stage.reason for stage in planned):
        return None
    with suppress(PlanError):
        return Before(execution_record.load_current_records(root), _load_stage_metrics(root, MEASURED))
    return None


def summarize_judgement_effects(
    root: Path, earlier: Before, planned: Sequence[PlannedStage], results: Sequence[StageResult]
) -> Changed | None:
    """What is different after the run; None where `preferences` has not read other judgements than before."""
    ended = {result.stage: result for result in results}
    if ended[STAGE].state not in ("ran", "restored"):
        return None
    judged = _get_judgement_hashes(read_lock_entries(root)[STAGE])
    old = earlier.records.get(STAGE)
    good = {name for name, result in ended.items() if result.state in ("ran", "restored", "up-to-date")}
    after = _load_stage_metrics(root, good)
    if "judgements" not in after[STAGE] or (old is not None and _get_judgement_hashes(old.entry) == judged):
        return None
    now = execution_record.load_current_records(root)
    compared = _compare_evaluated_policies(
        root, earlier, {name: execution for name, execution in now.items() if name in good}
    )
    same = [
        pair.policy
        for pair in compared
        if pair.same or _find_model_hash(pair.a, earlier.records) == _find_model_hash(pair.b, now)
    ]
    differing = [pair for pair in compared if pair.policy not in same]
    return Changed(earlier.metrics, after, differing, same, dict(_list_other_rerun_reasons(planned, judged)))


def _compare_evaluated_policies(root: Path, earlier: Before, now: Mapping[str, ExecutionRecord]) -> list[Compared]:
    """The policies that were evaluated before and now."""
    with suppress(PlanError):
        return evaluation_comparison.compare_side_evaluations(
            root, Side("before", "before", earlier.records), Side("after", "after", now)
        )
    return []


def _find_model_hash(evaluation: ExecutionRecord, records: Mapping[str, ExecutionRecord]) -> str | None:
    """The hash of the model that was evaluated."""
    stage = find_training_stage(records, evaluation.stage)
    return dvc_lock.get_entry_hashes(records[stage].entry, "outs").get(f"data/{stage}")


def _list_other_rerun_reasons(planned: Sequence[PlannedStage], judged: Mapping[str, str]) -> "list[tuple[str, str]]":
    """Stages that had a reason of their own to run."""
    stage_reasons = []
    for stage in planned:
        parts = (stage.reason or "").split("; ")
        own_reasons = [
            part
            for part in parts
            if part and not part.startswith("upstream ") and not _is_reason_about_paths(part, judged)
        ]
        if own_reasons:
            stage_reasons.append((stage.name, "; ".join(own_reasons)))
    return stage_reasons


def _is_reason_about_paths(reason: str, paths: Mapping[str, str]) -> bool:
    return reason.removeprefix("dep ").rpartition(" ")[0] in paths


def _get_judgement_hashes(entry: dvc_lock.Entry) -> dict[str, str]:
    """The record of judgements that the stage read, by its path as params.yaml names it, with its hash."""
    named = [values.get(STAGE, {}) for values in entry.get("params", {}).values()]
    paths = {
        str(section["judgements"]) for section in named if isinstance(section, Mapping) and "judgements" in section
    }
    return {path: md5 for path, md5 in dvc_lock.get_data_hashes(entry).items() if path in paths}


def _load_stage_metrics(root: Path, stages: Collection[str]) -> dict[str, Metrics]:
    metrics: dict[str, Metrics] = {stage: {} for stage in MEASURED}
    for stage in set(MEASURED) & set(stages):
        with suppress(OSError, ValueError):
            metrics[stage] = json.loads((root / f"data/metrics/{stage}.json").read_text())
    return metrics
