"""Rewards of a response, and their weighted sum: what a policy is trained for.

`verifiable` (1 where the final answer is the reference's) and `reward_model` (the trained one's score) are found for many
responses at once; each of the others is a function of one response, named in REWARDS.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from tasks.language.configs.policies import RewardName
from tasks.language.rewards import answers, rubric
from tasks.language.rewards.verifier import Verifier

METRICS = {  # of a step's samples
    "verifiable": "The share of the samples whose final answer is the reference's, from 0 to 1; where no reference is known, none is.",
    "format": "The share of the samples that end with a `#### N` line, whatever N is, from 0 to 1.",
    "rubric": "The mean rubric points of the samples over ten, from 0 to 1; computed where the rubric counts.",
    "reward_model": "The reward model's mean score of the samples; computed where it counts.",
}


@dataclass(frozen=True)
class Answered:
    """One response to one problem."""

    question: str
    solution: str
    answer: str  # the reference's final answer
    response: str
    ended: bool  # it closed itself, rather than being cut off


def rubric_reward(one: Answered) -> float:
    """The rubric's points divided by ten."""
    return rubric.score(one.question, one.solution, one.answer, one.response, one.ended).total / 10


def format_reward(one: Answered) -> float:
    """1 where the response ends with a `#### N` line, whether N is right or not; it is always logged."""
    return float(answers.strict_answer(one.response) is not None)


REWARDS: Mapping[RewardName, Callable[[Answered], float]] = {"format": format_reward, "rubric": rubric_reward}
Weights = Mapping[RewardName, float]  # how much each reward counts in the sum; one without a weight is at most logged


@dataclass(frozen=True)
class Rewards:
    """The weighted sums (N,) and, by name, the values (N,) of each part that was computed."""

    total: Tensor
    parts: dict[str, Tensor]


def rewards(
    answered: Sequence[Answered], weights: Weights, verifier: Verifier, model_scores: Tensor | None = None
) -> Rewards:
    """Judge N responses; `model_scores` (N,) are the reward model's, needed where it has a weight.

    A sum is nan where a part that counts is nan: a reference answer that cannot be read is neither right nor wrong.
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
    if model_scores is not None:
        if model_scores.shape != (len(answered),):
            raise ValueError(f"{len(answered)} responses and scores of shape {tuple(model_scores.shape)}")
        parts["reward_model"] = model_scores
    elif weights.get("reward_model"):
        raise ValueError(f"the reward model has weight {weights['reward_model']}, and no scores were given")
    total = torch.zeros(len(answered))
    for name in get_args(RewardName):  # in one order, whatever the order of the weights
        if weights.get(name):  # 0 * nan is nan
            total = total + weights[name] * parts[name]
    return Rewards(total, parts)
