"""A gate for weights: what a comparison must show, judged by the paired 95 % intervals, and a verdict to keep.

`grpo/strict_greedy > 0`: the whole interval of B minus A lies above 0. `grpo/strict_greedy not below -0.02`: B is
surely not worse by more than that. The verdict names both sides by their hashes and has no time in it, so that the same
comparison writes the same bytes.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from flows.engine import dvc_lock
from flows.engine.dvc_repository import PlanError
from flows.lineage.comparison.comparing import find_training_stage
from flows.lineage.comparison.evaluation_comparison import Compared
from flows.lineage.comparison.sides import Side
from flows.lineage.execution_record import ExecutionRecord

REQUIREMENT = re.compile(
    r"(?P<metric>.+?)\s*(?P<relation>>|<|not below|not above)\s*(?P<bound>[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)"
)
HOLDS = {  # of the interval's ends and the bound; an end that is not known is no reason to let anything through
    ">": lambda low, high, bound: low is not None and low > bound,
    "<": lambda low, high, bound: high is not None and high < bound,
    "not below": lambda low, high, bound: low is not None and low >= bound,
    "not above": lambda low, high, bound: high is not None and high <= bound,
}


@dataclass(frozen=True)
class Requirement:
    """One thing that must hold of a metric's difference, B minus A."""

    text: str
    metric: str  # with its policy, where there are several
    relation: str
    bound: float


@dataclass(frozen=True)
class RequirementVerdict:
    """A requirement with the numbers that it was judged by."""

    requirement: Requirement
    compared: Compared
    metric: str  # as the evaluation calls it
    row: Mapping[str, Any]

    @property
    def holds(self) -> bool:
        """Whether the interval says so; never of a metric that means something else on each side."""
        requirement = self.requirement
        row = self.row
        return "incomparable" not in row and bool(
            HOLDS[requirement.relation](row["low"], row["high"], requirement.bound)
        )


def parse_requirement(text: str) -> Requirement:
    """A requirement as it is typed; PlanError of one line if it is not one."""
    match = REQUIREMENT.fullmatch(text.strip())
    if match is None:
        raise PlanError(
            f"--require {text!r}: expected METRIC, then >, <, `not below` or `not above`, then a number: "
            "'grpo/strict_greedy > 0'"
        )
    return Requirement(text.strip(), match["metric"], match["relation"], float(match["bound"]))


def evaluate_requirements(
    requirements: Iterable[Requirement], comparisons: Sequence[Compared]
) -> list[RequirementVerdict]:
    """Every requirement with its numbers; PlanError of one line for a metric that was not compared."""
    compared_metrics = {
        _normalize_metric_name(name): (compared, metric)
        for compared in comparisons
        for metric in compared.metrics
        for name in ((f"{compared.policy}/{metric}" if compared.policy else metric),)
    }
    judged = []
    for requirement in requirements:
        if _normalize_metric_name(requirement.metric) not in compared_metrics:
            raise PlanError(_format_unknown_metric_error(requirement, comparisons))
        compared, metric = compared_metrics[_normalize_metric_name(requirement.metric)]
        judged.append(RequirementVerdict(requirement, compared, metric, compared.metrics[metric]))
    return judged


def _normalize_metric_name(name: str) -> str:
    """A metric's name as it may be typed: strict_mean@8 for strict_mean_at_8."""
    return re.sub(r"[\s_]+", "_", name.strip().replace("@", "_at_")).lower()


def _format_unknown_metric_error(requirement: Requirement, comparisons: Sequence[Compared]) -> str:
    names = [
        f"{compared.policy}/{metric}" if compared.policy else metric
        for compared in comparisons
        for metric in compared.metrics
    ]
    start = f"--require {requirement.text!r}: {requirement.metric} was not compared"
    policy = requirement.metric.partition("/")[0]
    for compared in comparisons:
        if compared.policy == policy and not compared.metrics:
            return f"{start}: {compared.fault or 'the two evaluations share no problem'}"
    near = [
        name for name in names if _normalize_metric_name(name).startswith(_normalize_metric_name(requirement.metric))
    ][:3]
    near = (
        near
        or [
            name
            for name in names
            if _normalize_metric_name(name).endswith("/" + _normalize_metric_name(requirement.metric))
        ][:3]
    )
    near = near or get_close_matches(requirement.metric, names, n=3, cutoff=0.5)
    if near:
        return f"{start}; did you mean {' or '.join(near)}?"
    return f"{start}; {'there are ' + ', '.join(names[:3]) + ', ...' if names else 'no policy was evaluated on both sides'}"  # noqa: E501


def build_gate_verdict(a: Side, b: Side, judged: Sequence[RequirementVerdict]) -> dict[str, Any]:
    """The verdict as JSON: both sides, every requirement with its interval, and whether all hold."""
    concerned = list({judgement.compared.policy: judgement.compared for judgement in judged}.values())
    return {
        "verdict": "holds" if all(judgement.holds for judgement in judged) else "fails",
        "difference": "B minus A, with the paired 95 % interval over problems (language), seeds (offline), or "
        "seeds and games (agents)",
        "requirements": [_build_requirement_entry(judgement) for judgement in judged],
        "a": _build_side_entry(a, [compared.a for compared in concerned]),
        "b": _build_side_entry(b, [compared.b for compared in concerned]),
        "cautions": {
            compared.policy or "policies": list(compared.cautions) for compared in concerned if compared.cautions
        },
    }


def _build_requirement_entry(judged: RequirementVerdict) -> dict[str, Any]:
    row = judged.row
    compared = judged.compared
    shown = ("a", "b", "difference", "low", "high", "interval", "gained", "lost", "p", "seeds", "incomparable")
    return {
        "requirement": judged.requirement.text,
        "holds": judged.holds,
        "policy": compared.policy,
        "metric": judged.metric,
        **{name: row[name] for name in shown if name in row},
        **({"problems": compared.problems} if compared.problems else {}),
    }


def _build_side_entry(side: Side, evaluations: Iterable[ExecutionRecord]) -> dict[str, Any]:
    """What was compared, by hashes: each evaluation with all that it read, and the model's own stage."""
    stages = {}
    for evaluation in evaluations:
        for record in (evaluation, side.records[find_training_stage(side.records, evaluation.stage)]):
            stages[record.stage] = {
                "run": record.run_id,
                "commit": record.commit,
                "dirty": record.dirty,
                "outs": dvc_lock.get_entry_hashes(record.entry, "outs"),
                "data": dvc_lock.get_data_hashes(record.entry),
                "code": dvc_lock.compute_code_hash(dvc_lock.get_code_hashes(record.entry)),
            }
    return {
        "named": side.name,
        "is": side.about,
        "pipeline_run": side.pipeline.id if side.pipeline else None,
        "stages": stages,
    }


def format_verdict_json(verdict_json: Mapping[str, Any]) -> str:
    """The verdict as a file has it."""
    return json.dumps(verdict_json, indent=1, sort_keys=True) + "\n"
