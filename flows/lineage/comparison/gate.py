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
from flows.lineage.comparison.comparing import trained
from flows.lineage.comparison.measured import Compared
from flows.lineage.comparison.sides import Side
from flows.lineage.record import Record

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
class Judged:
    """A requirement with the numbers that it was judged by."""

    requirement: Requirement
    compared: Compared
    metric: str  # as the evaluation calls it
    row: Mapping[str, Any]

    @property
    def holds(self) -> bool:
        """Whether the interval says so; never of a metric that means something else on each side."""
        asked, row = self.requirement, self.row
        return "incomparable" not in row and bool(HOLDS[asked.relation](row["low"], row["high"], asked.bound))


def parse(text: str) -> Requirement:
    """A requirement as it is typed; PlanError of one line if it is not one."""
    found = REQUIREMENT.fullmatch(text.strip())
    if found is None:
        raise PlanError(
            f"--require {text!r}: expected METRIC, then >, <, `not below` or `not above`, then a number: "
            "'grpo/strict_greedy > 0'"
        )
    return Requirement(text.strip(), found["metric"], found["relation"], float(found["bound"]))


def judge(requirements: Iterable[Requirement], found: Sequence[Compared]) -> list[Judged]:
    """Every requirement with its numbers; PlanError of one line for a metric that was not compared."""
    known = {
        _plain(name): (one, metric)
        for one in found
        for metric in one.metrics
        for name in ((f"{one.policy}/{metric}" if one.policy else metric),)
    }
    judged = []
    for requirement in requirements:
        if _plain(requirement.metric) not in known:
            raise PlanError(_unknown(requirement, found))
        one, metric = known[_plain(requirement.metric)]
        judged.append(Judged(requirement, one, metric, one.metrics[metric]))
    return judged


def _plain(name: str) -> str:
    """A metric's name as it may be typed: strict_mean@8 for strict_mean_at_8."""
    return re.sub(r"[\s_]+", "_", name.strip().replace("@", "_at_")).lower()


def _unknown(requirement: Requirement, found: Sequence[Compared]) -> str:
    names = [f"{one.policy}/{metric}" if one.policy else metric for one in found for metric in one.metrics]
    start = f"--require {requirement.text!r}: {requirement.metric} was not compared"
    policy = requirement.metric.partition("/")[0]
    for one in found:
        if one.policy == policy and not one.metrics:
            return f"{start}: {one.fault or 'the two evaluations share no problem'}"
    near = [name for name in names if _plain(name).startswith(_plain(requirement.metric))][:3]
    near = near or [name for name in names if _plain(name).endswith("/" + _plain(requirement.metric))][:3]
    near = near or get_close_matches(requirement.metric, names, n=3, cutoff=0.5)
    if near:
        return f"{start}; did you mean {' or '.join(near)}?"
    return f"{start}; {'there are ' + ', '.join(names[:3]) + ', ...' if names else 'no policy was evaluated on both sides'}"


def verdict(a: Side, b: Side, judged: Sequence[Judged]) -> dict[str, Any]:
    """The verdict as JSON: both sides, every requirement with its interval, and whether all hold."""
    concerned = list({one.compared.policy: one.compared for one in judged}.values())
    return {
        "verdict": "holds" if all(one.holds for one in judged) else "fails",
        "difference": "B minus A, with the paired 95 % interval over problems (language), seeds (offline), or "
        "seeds and games (agents)",
        "requirements": [_required(one) for one in judged],
        "a": _side(a, [one.a for one in concerned]),
        "b": _side(b, [one.b for one in concerned]),
        "cautions": {one.policy or "policies": list(one.cautions) for one in concerned if one.cautions},
    }


def _required(judged: Judged) -> dict[str, Any]:
    row, one = judged.row, judged.compared
    shown = ("a", "b", "difference", "low", "high", "interval", "gained", "lost", "p", "seeds", "incomparable")
    return {
        "requirement": judged.requirement.text,
        "holds": judged.holds,
        "policy": one.policy,
        "metric": judged.metric,
        **{name: row[name] for name in shown if name in row},
        **({"problems": one.problems} if one.problems else {}),
    }


def _side(side: Side, evaluations: Iterable[Record]) -> dict[str, Any]:
    """What was compared, by hashes: each evaluation with all that it read, and the model's own stage."""
    stages = {}
    for evaluation in evaluations:
        for record in (evaluation, side.records[trained(side.records, evaluation.stage)]):
            stages[record.stage] = {
                "run": record.run_id,
                "commit": record.commit,
                "dirty": record.dirty,
                "outs": dvc_lock.hashes(record.entry, "outs"),
                "data": dvc_lock.data(record.entry),
                "code": dvc_lock.code_hash(dvc_lock.code(record.entry)),
            }
    return {
        "named": side.name,
        "is": side.about,
        "pipeline_run": side.pipeline.id if side.pipeline else None,
        "stages": stages,
    }


def text(told: Mapping[str, Any]) -> str:
    """The verdict as a file has it."""
    return json.dumps(told, indent=1, sort_keys=True) + "\n"
