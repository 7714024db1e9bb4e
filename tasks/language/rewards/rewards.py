"""Rewards of a response, and their weighted sum: what a policy is trained for.

`verifiable` (1 where the final answer is the reference's), what a reward model says (`reward_model`, `outcome`, `process`) and
functions of the user's (`rewards/FILE.py:NAME`) are found for many responses at once; each of the others is a function of one
response, named in REWARDS.

A response of which a reward that counts is missing has no reward: the sum is nan, and nothing learns from it. A missing part is not a 0,
which would be the best of negative ones; nor are sums with and without a part comparable, so that a policy would learn to lack it.
TRL adds up the parts that are there (https://github.com/huggingface/trl/pull/5902), and has no reward only where all are missing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import torch
from torch import Tensor

from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.language.experience import StepRewards
from tasks.language.configs.parts.python_rewards import BY_MODEL, RewardName, is_python
from tasks.language.rewards import answers, code_tests, constraints, python_functions, rubric
from tasks.language.rewards.code_tests import CodeJudge
from tasks.language.rewards.python_functions import PythonFunction
from tasks.language.rewards.verifier import Verifier

METRICS = {  # of a step's samples
    "verifiable": "The share of the samples whose final answer is the reference's, from 0 to 1; where no reference is known, none is.",
    "format": "The share of the samples that end with a `#### N` line, whatever N is, from 0 to 1.",
    "rubric": "The mean rubric points of the samples over ten, from 0 to 1; computed where the rubric counts.",
    "reward_model": "The reward model's mean score of the samples; computed where it counts.",
    "constraints": "The mean share of their constraints that the samples keep, from 0 to 1, of prompts that have some; 0 in a step without.",
    "all_constraints": "The share of the samples that keep all their constraints, of prompts that have some; 0 in a step without.",
    "code": "The share of the samples whose program passes all tests of its problem, of prompts that have tests; 0 in a step without.",
    "outcome": "The mean probability that a sample is right, by the outcome reward model; computed where it counts.",
    "process": "The mean score of the samples by the process reward model, from its scores of their steps; computed where it counts.",
    **python_functions.METRICS,
}
NONE, FAILED = "/none", "/failed"  # what is logged of a function besides its mean
Columns = Mapping[str, Any]
TAKEN = ("prompts", "responses", "completions")  # names under which a function gets something else than a column


@dataclass(frozen=True)
class Answered:
    """One response to one problem."""

    question: str
    solution: str
    answer: str  # the reference's final answer
    response: str
    ended: bool  # it closed itself, rather than being cut off
    columns: Columns = field(default_factory=dict)  # what else the data set says of the problem


def rubric_reward(one: Answered) -> float:
    """The rubric's points divided by ten."""
    return rubric.score(one.question, one.solution, one.answer, one.response, one.ended).total / 10


def format_reward(one: Answered) -> float:
    """1 where the response ends with a `#### N` line, whether N is right or not; it is always logged."""
    return float(answers.strict_answer(one.response) is not None)


def constraints_reward(one: Answered) -> float:
    """The share of the prompt's constraints that the response keeps; nan where the prompt has none."""
    return constraints.constraints(one.response, one.columns) if constraints.given(one.columns) else math.nan


REWARDS: Mapping[RewardName, Callable[[Answered], float]] = {
    "format": format_reward,
    "rubric": rubric_reward,
    "constraints": constraints_reward,
}
# Rewards by columns of the prompt: whether it has them, what is wrong with them, and the parts that are logged.
BY_COLUMNS: Mapping[str, tuple[Callable[[Columns], bool], Callable[[Columns], str | None], tuple[str, ...]]] = {
    "constraints": (constraints.given, constraints.check, ("constraints", "all_constraints")),
    "code": (code_tests.given, code_tests.check, ("code",)),
}
Weights = Mapping[str, float]  # by name, how much each reward counts in the sum; one without a weight is at most logged


@dataclass(frozen=True)
class Rewards:
    """The weighted sums (N,), nan for no reward, these without `process` (N,) and, by name, the values (N,) of each part that was computed.

    A function of the user's has two parts: its values, nan where it has none, and, after its name and FAILED, 1 where it failed.
    """

    total: Tensor
    others: Tensor
    parts: dict[str, Tensor]
    steps: StepRewards | None = None  # where a process reward model judged them


def rewards(
    answered: Sequence[Answered],
    weights: Weights,
    verifier: Verifier,
    model_scores: Mapping[str, Tensor] | None = None,
    functions: Mapping[str, PythonFunction] | None = None,
    code: CodeJudge | None = None,
) -> Rewards:
    """Judge N responses; `model_scores` (N,) are a reward model's, by the rewards of BY_MODEL, needed where they have a weight, as is each of `functions`.

    A sum is nan, no reward, where a part that counts is nan: a reference answer that cannot be read is neither right nor wrong, and a
    function may have no reward for a response. A reward by columns that a prompt lacks adds nothing to its responses' sums, since that
    does not hang on the response; where no other counts, they have no reward. TrainingError where a reward model's score is not finite.
    """
    golds, responses = [one.answer for one in answered], [one.response for one in answered]
    parts: dict[str, Tensor] = {
        "verifiable": torch.tensor(verifier(golds, responses)),
        **{
            name: torch.tensor([reward(one) for one in answered])
            for name, reward in REWARDS.items()
            if weights.get(name) or name == "format"
        },
    }
    if "constraints" in parts:
        kept = parts["constraints"]
        parts["all_constraints"] = torch.where(kept.isnan(), kept, (kept == 1).float())
    if weights.get("code"):
        parts["code"] = _code(answered, code)
    for name, scores in (model_scores or {}).items():
        if scores.shape != (len(answered),):
            raise ValueError(f"{len(answered)} responses and scores of shape {tuple(scores.shape)}")
        if bad := (~scores.isfinite()).nonzero().flatten().tolist():
            raise TrainingError(
                f"the reward {name} of response {bad[0]} is {scores[bad[0]]:g} ({len(bad)} of {len(scores)} scores are no finite "
                "numbers): the reward model is broken"
            )
        parts[name] = scores
    for name in BY_MODEL:
        if weights.get(name) and name not in parts:
            raise ValueError(f"{name} has weight {weights[name]}, and no scores were given")
    others, applies = torch.zeros(len(answered)), torch.zeros(len(answered), dtype=torch.bool)
    for name in get_args(RewardName):  # in one order, whatever the order of the weights
        if weights.get(name):
            own = torch.tensor([name not in BY_COLUMNS or BY_COLUMNS[name][0](one.columns) for one in answered])
            applies |= own
            if name != "process":  # 0 * nan is nan
                others = others + weights[name] * parts[name].masked_fill(~own, 0.0)
    for name in sorted(name for name in weights if is_python(name) and weights[name]):
        found = (functions or {})[name](*_given(answered))
        parts[name], parts[name + FAILED] = torch.tensor(found.values), torch.tensor(found.failed).float()
        applies |= True
        others = others + weights[name] * parts[name]
    others = others.masked_fill(~applies, torch.nan)
    total = others + weights["process"] * parts["process"] if weights.get("process") else others
    return Rewards(total, others, parts)


def fault(row: Mapping[str, Any], columns: Columns, weights: Weights) -> str | None:
    """What the rewards that count need and a row of Prompts lacks; None where it has all.

    A reward by columns that the row itself names needs them; one that the stage counts passes over rows without.
    """
    for name in ("verifiable", "rubric"):
        if weights.get(name) and not row["answer"]:
            return f"there is no answer, which the reward {name} needs"
    for name, (given, wrong, _) in BY_COLUMNS.items():
        counts = weights.get(name) and (row["reward"] == name or given(columns))
        if counts and (what := wrong(columns)):
            return f"reward {name}: {what}"
    taken = [name for name in TAKEN if name in columns]
    if taken and any(is_python(name) and weights[name] for name in weights):
        return f"a column is called {taken[0]}; expected another name, since rewards get the {taken[0]} so"
    return None


def _code(answered: Sequence[Answered], judge: CodeJudge | None) -> Tensor:
    """1 or 0 (N,), nan where the prompt has no tests, or nobody could judge the program."""
    if judge is None:
        raise ValueError("the reward code has a weight, and nobody was given to judge programs")
    found = torch.full((len(answered),), torch.nan)
    tested = [place for place, one in enumerate(answered) if code_tests.given(one.columns)]
    jobs = [
        code_tests.job(answered[place].question, answered[place].columns, answered[place].response) for place in tested
    ]
    found[tested] = torch.tensor(judge(jobs))
    return found


def _given(answered: Sequence[Answered]) -> tuple[list[str], list[str], dict[str, list[Any]]]:
    """Prompts, responses and columns as a function of the user's gets them; a column that a prompt lacks is None."""
    names = sorted({name for one in answered for name in one.columns} - {"question", "solution", "answer"})
    columns: dict[str, list[Any]] = {
        "solution": [one.solution for one in answered],
        "answer": [one.answer for one in answered],
        **{name: [one.columns.get(name) for one in answered] for name in names},
    }
    return [one.question for one in answered], [one.response for one in answered], columns


def means(parts: Mapping[str, Tensor]) -> dict[str, float]:
    """What is logged of each part (METRICS, after `rewards/`), all of them numbers."""
    found = {}
    for name, values in parts.items():
        known = values[~values.isnan()]
        if is_python(name):
            found[name] = known.mean().item() if len(known) else 0.0
            found[name + NONE] = values.isnan().float().mean().item()
        elif name.endswith(FAILED):
            found[name] = values.nan_to_num(0.0).mean().item()
        else:
            found[f"rewards/{name}"] = known.mean().item() if len(known) else 0.0
    return found
