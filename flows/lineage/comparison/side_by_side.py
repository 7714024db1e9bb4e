"""Two sides held against each other as one: what differs in how they were made, and in what was measured of them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.lineage.comparison import evaluation_comparison
from flows.lineage.comparison.comparing import StageChange, Ways, changes, trained, ways
from flows.lineage.comparison.evaluation_comparison import Compared
from flows.lineage.comparison.sides import NOW, Side, sides
from flows.params.files import write


@dataclass(frozen=True)
class SideBySide:
    """B against A. `made` has the stages that differ, or for two policies the ways by which they came about."""

    a: Side
    b: Side
    made: Sequence[StageChange] | Ways
    found: Sequence[Compared]


def compare(root: Path, a: str, b: str, snapshot_name: str = NOW) -> SideBySide:
    """The comparison of what `a` and `b` name; policies are those of `snapshot_name`.

    PlanError of one line if one is not there.
    """
    old, new = sides(root, a, b, snapshot_name)
    made: Sequence[StageChange] | Ways = changes(old.records, new.records)
    if old.policy is not None and new.policy is not None:
        made = ways(new.records, *(trained(new.records, new.evaluated[policy]) for policy in (old.policy, new.policy)))
    return SideBySide(old, new, made, evaluation_comparison.compare(root, old, new))


def keep(root: Path, comparison: SideBySide, file: Path | None, path_template: str, text: str) -> Path:
    """Write a text to `file`, or else below mlruns/ to `path_template`, whose `{}` becomes both names; returns the
    path.
    """
    if file is None:
        named = "..".join(re.sub(r"[^\w.-]+", "-", side.name) for side in (comparison.a, comparison.b))
        file = root / "mlruns" / path_template.format(named)
    file.parent.mkdir(parents=True, exist_ok=True)
    write(file, text.encode())
    return file.absolute()


def document(comparison: SideBySide) -> dict[str, Any]:
    """The comparison as JSON."""
    made = comparison.made
    stages = {"ways": vars(made)} if isinstance(made, Ways) else {"stages": [vars(change) for change in made]}
    return {
        "a": _side(comparison.a),
        "b": _side(comparison.b),
        **stages,
        "evaluations": [_evaluation(pair) for pair in comparison.found],
    }


def _side(side: Side) -> dict[str, Any]:
    pipeline = side.pipeline.id if side.pipeline else None
    return {"named": side.name, "is": side.about, "pipeline_run": pipeline, "policy": side.policy}


def _evaluation(pair: Compared) -> Mapping[str, Any]:
    return {
        "policy": pair.policy,
        "stages": {"a": pair.a.stage, "b": pair.b.stage},
        "runs": {"a": pair.a.run_id, "b": pair.b.run_id},
        "same": pair.same,
        "cautions": list(pair.cautions),
        "fault": pair.fault,
        **pair.numbers,
    }
