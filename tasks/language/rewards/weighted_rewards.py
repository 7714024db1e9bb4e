"""Rewards of a response, and their weighted sum: what a policy is trained for.

Each reward is a file of by_name/ (reward.py), but for what a reward model says (`reward_model`, `outcome`, `process`)
and functions of the user's (`rewards/FILE.py:NAME`).

A response of which a reward that counts is missing has no reward: the sum is nan, and nothing learns from it. A missing
part is not a 0, which would be the best of negative ones; nor are sums with and without a part comparable, so that a
policy would learn to lack it. TRL adds up the parts that are there (https://github.com/huggingface/trl/pull/5902), and
has no reward only where all are missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.language.experience import StepRewards
from tasks.language.configs.parts.python_rewards import BY_MODEL, is_python_reward
from tasks.language.rewards import python_functions
from tasks.language.rewards.by_name.format import format
from tasks.language.rewards.by_name.verifiable import verifiable
from tasks.language.rewards.python_functions import PythonFunction
from tasks.language.rewards.reward import AnsweredProblem, Columns, Reward, load
from tasks.language.rewards.verifier import Verifier

METRICS = {  # of a step's samples
    "REWARD": "What the file of the reward in by_name/ says in its METRICS.",
    "reward_model": "The reward model's mean score of the samples; computed where it counts.",
    "outcome": "The mean probability that a sample is right, by the outcome reward model; computed where it counts.",
    "process": "The mean score of the samples by the process reward model, from its scores of their steps; "
    "computed where it counts.",
    **python_functions.METRICS,
}
# what is logged of a function besides its mean
NONE = "/none"
FAILED = "/failed"
TAKEN = ("prompts", "responses", "completions")  # names under which a function gets something else than a column
ALWAYS = {"verifiable": verifiable, "format": format}  # logged even where they do not count
# A sum of floats depends on the order: first these, then others by name, then functions of the user's.
ORDER = ("verifiable", "rubric", "reward_model", "format", "constraints", "code", "outcome", "process")
Weights = Mapping[str, float]  # by name, how much each reward counts in the sum; one without a weight is at most logged


@dataclass(frozen=True)
class Rewards:
    """The weighted sums (N,), nan for no reward, these without `process` (N,) and, by name, the values (N,) of each
    part that was computed.

    A function of the user's has two parts: its values, nan where it has none, and, after its name and FAILED, 1 where
    it failed.
    """

    total: Tensor
    others: Tensor
    parts: dict[str, Tensor]
    steps: StepRewards | None = None  # where a process reward model judged them


def list_counted_reward_names(weights: Weights) -> list[str]:
    """The names that count, without functions of the user's, as they are added up: whatever the order of the
    weights.
    """
    names = [name for name, weight in weights.items() if weight and not is_python_reward(name)]
    return sorted(names, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))


def load_counted_rewards(weights: Weights) -> dict[str, Reward]:
    """Those that count and are files of by_name/, in the same order."""
    return {name: load(name) for name in list_counted_reward_names(weights) if name not in BY_MODEL}


@contextmanager
def open_reward_helpers(weights: Weights) -> Iterator[dict[str, Any]]:
    """The helpers of the rewards that count, by name, until the block ends; the verifier is there in any case."""
    with ExitStack() as ending:
        yield {
            name: ending.enter_context(reward.helper())
            for name, reward in load_counted_rewards(weights).items()
            if reward.helper is not None and name not in ALWAYS
        }


def compute_weighted_rewards(
    answered: Sequence[AnsweredProblem],
    weights: Weights,
    verifier: Verifier,
    model_scores: Mapping[str, Tensor] | None = None,
    functions: Mapping[str, PythonFunction] | None = None,
    helpers: Mapping[str, Any] | None = None,
) -> Rewards:
    """Judge N responses; `model_scores` (N,) are a reward model's, by the rewards of BY_MODEL, needed where they have a
    weight, as is each of `functions`.

    `helpers` has those of the rewards that count, by name. A sum is nan, no reward, where a part that counts is nan: a
    reference answer that cannot be read is neither right nor wrong, and a function may have no reward for a response. A
    reward by columns that a prompt lacks adds nothing to its responses' sums, since that does not hang on the response;
    where no other counts, they have no reward. TrainingError where a reward model's score is not finite.
    """
    judged = {**ALWAYS, **load_counted_rewards(weights)}
    parts = _compute_reward_parts(answered, judged, {**(helpers or {}), "verifiable": verifier})
    for name, scores in (model_scores or {}).items():
        if scores.shape != (len(answered),):
            raise ValueError(f"{len(answered)} responses and scores of shape {tuple(scores.shape)}")
        if bad := (~scores.isfinite()).nonzero().flatten().tolist():
            raise TrainingError(
                f"the reward {name} of response {bad[0]} is {scores[bad[0]]:g} ({len(bad)} of {len(scores)} scores "
                "are no finite "
                "numbers): the reward model is broken"
            )
        parts[name] = scores
    for name in BY_MODEL:
        if weights.get(name) and name not in parts:
            raise ValueError(f"{name} has weight {weights[name]}, and no scores were given")
    others = torch.zeros(len(answered))
    applies = torch.zeros(len(answered), dtype=torch.bool)
    for name in list_counted_reward_names(weights):
        columns = judged[name].columns if name in judged else None
        has = torch.tensor([columns is None or columns.has(response.columns) for response in answered])
        applies |= has
        if name != "process":  # 0 * nan is nan
            others = others + weights[name] * parts[name].masked_fill(~has, 0.0)
    for name in sorted(name for name in weights if is_python_reward(name) and weights[name]):
        judgement = (functions or {})[name](*_collect_function_arguments(answered))
        parts[name], parts[name + FAILED] = torch.tensor(judgement.values), torch.tensor(judgement.failed).float()
        applies |= True
        others = others + weights[name] * parts[name]
    others = others.masked_fill(~applies, torch.nan)
    total = others + weights["process"] * parts["process"] if weights.get("process") else others
    return Rewards(total, others, parts)


def _compute_reward_parts(
    answered: Sequence[AnsweredProblem], judged: Mapping[str, Reward], helpers: Mapping[str, Any]
) -> dict[str, Tensor]:
    """The values (N,) of each of these rewards, and what else is logged of them."""
    parts = {}
    for name, reward in judged.items():
        if reward.helper is not None and helpers.get(name) is None:
            raise ValueError(f"the reward {name} has a weight, and no helper was started for it")
        values = reward.judge(answered, helpers.get(name))
        parts[name] = torch.tensor(values)
        for other, of_value in reward.further.items():
            parts[other] = torch.tensor([of_value(value) for value in values])
    return parts


def find_prompt_fault(row: Mapping[str, Any], columns: Columns, weights: Weights) -> str | None:
    """What the rewards that count need and a row of Prompts lacks; None where it has all.

    A reward by columns that the row itself names needs them; one that the stage counts passes over rows without.
    """
    for name, reward in load_counted_rewards(weights).items():
        if reward.needs_answer and not row["answer"]:
            return f"there is no answer, which the reward {name} needs"
        by = reward.columns
        counts = by is not None and (row["reward"] == name or by.has(columns))
        if by is not None and counts and (what := by.fault(columns)):
            return f"reward {name}: {what}"
    reserved = [name for name in TAKEN if name in columns]
    if reserved and any(is_python_reward(name) and weights[name] for name in weights):
        return f"a column is called {reserved[0]}; expected another name, since rewards get the {reserved[0]} so"
    return None


def _collect_function_arguments(
    answered: Sequence[AnsweredProblem],
) -> tuple[list[str], list[str], dict[str, list[Any]]]:
    """Prompts, responses and columns as a function of the user's gets them; a column that a prompt lacks is None."""
    names = sorted({name for sample in answered for name in sample.columns} - {"question", "solution", "answer"})
    columns: dict[str, list[Any]] = {
        "solution": [sample.solution for sample in answered],
        "answer": [sample.answer for sample in answered],
        **{name: [sample.columns.get(name) for sample in answered] for name in names},
    }
    return [sample.question for sample in answered], [sample.response for sample in answered], columns


def average_reward_parts(parts: Mapping[str, Tensor]) -> dict[str, float]:
    """What is logged of each part (METRICS, after `rewards/`), all of them numbers."""
    averages = {}
    for name, values in parts.items():
        judged = values[~values.isnan()]
        if is_python_reward(name):
            averages[name] = judged.mean().item() if len(judged) else 0.0
            averages[name + NONE] = values.isnan().float().mean().item()
        elif name.endswith(FAILED):
            averages[name] = values.nan_to_num(0.0).mean().item()
        else:
            averages[f"rewards/{name}"] = judged.mean().item() if len(judged) else 0.0
    return averages
