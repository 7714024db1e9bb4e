"""Two sides held against each other as one: what differs in how they were made, and in what was measured of them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.lineage.comparison import evaluation_comparison
from flows.lineage.comparison.comparing import (
    StageChange,
    Ways,
    compare_snapshots,
    compare_stage_ancestry,
    find_training_stage,
)
from flows.lineage.comparison.evaluation_comparison import Compared
from flows.lineage.comparison.sides import NOW, Side, resolve_sides
from flows.params.files import write_file_atomically


@dataclass(frozen=True)
class SideBySide:
    """B against A. `made` has the stages that differ, or for two policies the ways by which they came about."""

    a: Side
    b: Side
    made: Sequence[StageChange] | Ways
    found: Sequence[Compared]


def compare_sides(root: Path, a: str, b: str, snapshot_name: str = NOW) -> SideBySide:
    """The comparison of what `a` and `b` name; policies are those of `snapshot_name`.

    PlanError of one line if one is not there.
    """
    old, new = resolve_sides(root, a, b, snapshot_name)
    made: Sequence[StageChange] | Ways = compare_snapshots(old.records, new.records)
    if old.policy is not None and new.policy is not None:
        made = compare_stage_ancestry(
            new.records,
            *(find_training_stage(new.records, new.evaluated[policy]) for policy in (old.policy, new.policy)),
        )
    return SideBySide(old, new, made, evaluation_comparison.compare_side_evaluations(root, old, new))


def write_comparison_text(root: Path, comparison: SideBySide, file: Path | None, path_template: str, text: str) -> Path:
    """Write a text to `file`, or else below mlruns/ to `path_template`, whose `{}` becomes both names; returns the
    path.
    """
    if file is None:
        named = "..".join(re.sub(r"[^\w.-]+", "-", side.name) for side in (comparison.a, comparison.b))
        file = root / "mlruns" / path_template.format(named)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file_atomically(file, text.encode())
    return file.absolute()


def build_comparison_document(comparison: SideBySide) -> dict[str, Any]:
    """The comparison as JSON."""
    made = comparison.made
    stages = {"ways": vars(made)} if isinstance(made, Ways) else {"stages": [vars(change) for change in made]}
    return {
        "a": _build_side_entry(comparison.a),
        "b": _build_side_entry(comparison.b),
        **stages,
        "evaluations": [_build_evaluation_entry(pair) for pair in comparison.found],
    }


def _build_side_entry(side: Side) -> dict[str, Any]:
    pipeline = side.pipeline.id if side.pipeline else None
    return {"named": side.name, "is": side.about, "pipeline_run": pipeline, "policy": side.policy}


def _build_evaluation_entry(pair: Compared) -> Mapping[str, Any]:
    return {
        "policy": pair.policy,
        "stages": {"a": pair.a.stage, "b": pair.b.stage},
        "runs": {"a": pair.a.run_id, "b": pair.b.run_id},
        "same": pair.same,
        "cautions": list(pair.cautions),
        "fault": pair.fault,
        **pair.numbers,
    }
