"""The number by which `posttrain sweep --early` compares trainings: whether less of it is better, where on the way it
is measured, and what may not vary beside it.
"""

import json
import math
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Self, TypedDict

from flows.engine.dvc_repository import PlanError

COLUMNS_FILE = Path("tasks/curve_columns.py")  # of a project that can say which numbers its trainings write
WORDS = re.compile(r"[^/_]+")
LESS = {"loss", "nll", "perplexity"}
MORE = {"accuracy", "margin", "margins", "return", "reward", "rewards", "rubric"}
EITHER = {"rejected"}  # of what is more or less by the side of it
VALIDATION = "eval_"  # how the names of what is measured every `evaluate_every` steps begin
EVERY = "evaluate_every"
PROMPTS = "evaluate_prompts"
SAMPLING = (
    "temperature",
    "top_p",
    "max_new_tokens",
    EVERY,
    PROMPTS,
)  # what numbers of answers depend on besides the policy
JUDGES = ("preferences", "reward_model")  # sections on which what a reward is depends

Params = Mapping[str, Any]  # of a stage, by their sections


class CurveColumns(TypedDict):
    """Whether a stage's curve has the number that was asked for, and the names of all that it has."""

    has: bool
    names: list[str]


@dataclass(frozen=True)
class Measure:
    """A number of trainings' curves. `lower`: less is better."""

    name: str
    lower: bool

    @classmethod
    def asked(cls, text: str) -> Self:
        """`NAME`, if its name says which is better, or `min:NAME` or `max:NAME`; PlanError otherwise."""
        way, _, name = text.rpartition(":")
        words = {*WORDS.findall(name.lower())}
        less = bool(words & LESS)
        more = bool(words & MORE)
        if way not in ("", "min", "max") or not name:
            raise PlanError(f"--early {text}: expected the name of a number, or min: or max: before it")
        if not way and (less == more or words & EITHER):
            raise PlanError(f"--early {name}: say whether less or more is better: min:{name} or max:{name}")
        return cls(name, way == "min" if way else less)

    def rank(self, value: float) -> float:
        """Of two values the better has the lower rank."""
        return value if self.lower else -value

    def check(self, params: Params, varied_of_stage: Collection[str], varied: Collection[str]) -> None:
        """PlanError where points would not be compared at the same step, or by different measures.

        `params` are those of the stage by section, `varied_of_stage` those of them that vary, `varied` all that do.
        """
        last = {key.rpartition(".")[2]: key for key in varied_of_stage}
        length = "steps" if any("steps" in values for values in _iterate_section_params(params)) else "epochs"
        if length in last:
            raise PlanError(f"--early: compares points at the same step, but {last[length]} varies")
        if sampled := next((last[name] for name in SAMPLING if name in last), None):
            raise PlanError(f"--early {self.name}: {sampled} varies, so that points are not measured alike")
        judge = next((key for key in varied if key.partition(".")[0] in JUDGES or ".reward" in key), None)
        if judge and {*WORDS.findall(self.name)} & {"reward", "rewards"}:
            raise PlanError(
                f"--early {self.name}: {judge} varies, so that points have different rewards; use eval_accuracy"
            )

    def shares(self, stage: str, params: Params, count: int) -> list[Fraction]:
        """After which shares of the steps trainings are compared: 1/2, 1/4 and so on, `count` of them at most, in their
        order.

        A number of validation is compared where it is measured, at the next step that is a multiple of
        `evaluate_every`. `params` are the stage's, by their sections.
        """
        shares = [Fraction(1, 2**power) for power in range(count, 0, -1)]
        if not self.name.startswith(VALIDATION):
            return shares
        for section, values in params.items():
            if isinstance(values, Mapping) and EVERY in values and "steps" in values:
                return _round_shares_to_evaluations(
                    shares, int(values[EVERY]), int(values["steps"]), f"--early {self.name}: {stage}", section
                )
        return shares


def query_curve_columns(tree: Path, commands: Mapping[str, object], name: str) -> dict[str, CurveColumns]:
    """Whether the curves of stages have a number of this name, and the names that they have; of those that the project
    can tell this of.

    `commands` has each stage's command, `tree` the project. PlanError where it cannot be asked.
    """
    matches = {stage: re.search(r" -m (tasks\.[\w.]+)", str(command)) for stage, command in commands.items()}
    modules = {stage: match[1] for stage, match in matches.items() if match}
    if not modules or not (tree / COLUMNS_FILE).is_file():
        return {}
    command = [sys.executable, "-m", "tasks.curve_columns", name, *modules.values()]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PlanError(f"{COLUMNS_FILE}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    curves = json.loads(done.stdout)
    return {stage: curves[module] for stage, module in modules.items()}


def _round_shares_to_evaluations(
    shares: Sequence[Fraction], every: int, total: int, what: str, section: str
) -> list[Fraction]:
    if not every:
        raise PlanError(f"{what} does not measure it on its way, since {section}.{EVERY} is 0")
    steps = dict.fromkeys(every * math.ceil(share * total / every) for share in shares)
    if min(steps) >= total:
        raise PlanError(f"{what} measures it at its end alone, since {section}.{EVERY} is {every}")
    return [Fraction(step, total) for step in steps if step < total]


def _iterate_section_params(params: Params) -> Iterator[Mapping[str, Any]]:
    return (values for values in params.values() if isinstance(values, Mapping))
