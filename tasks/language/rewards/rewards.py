"""Rewards of a response, and their weighted sum: what a policy is trained for.

`verifiable` (1 where the final answer is the reference's), `rubric` (the lecture's ten points, scaled to 0..1),
`reward_model` (the trained one's score) and `format` (1 where the response ends with a `#### N` line), which says nothing
of correctness and is reported apart.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from tasks.language.rewards import answers, rubric
from tasks.language.rewards.verifier import Verifier

METRICS = {  # of a step's samples
    "verifiable": "The share of the samples whose final answer is the reference's, from 0 to 1.",
    "format": "The share of the samples that end with a `#### N` line, whatever N is, from 0 to 1.",
    "rubric": "The mean rubric points of the samples over ten, from 0 to 1; known where the rubric counts.",
    "reward_model": "The reward model's mean score of the samples; known where it counts.",
}


@dataclass(frozen=True)
class Answered:
    """One response to one problem."""

    question: str
    solution: str
    answer: str  # the reference's final answer
    response: str
    ended: bool  # it closed itself, rather than being cut off


@dataclass(frozen=True)
class Weights:
    """How much each reward counts in the sum; with 0 it is at most logged."""

    verifiable: float
    rubric: float
    reward_model: float
    format: float = 0.0


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
    parts = {
        "verifiable": torch.tensor(verifier(golds, responses)),
        "format": torch.tensor([float(answers.strict_answer(response) is not None) for response in responses]),
    }
    if weights.rubric:
        parts["rubric"] = torch.tensor([rubric_reward(one) for one in answered])
    if model_scores is not None:
        if model_scores.shape != (len(answered),):
            raise ValueError(f"{len(answered)} responses and scores of shape {tuple(model_scores.shape)}")
        parts["reward_model"] = model_scores
    elif weights.reward_model:
        raise ValueError(f"the reward model has weight {weights.reward_model}, and no scores were given")
    total = torch.zeros(len(answered))
    for name, weight in asdict(weights).items():
        if weight:  # 0 * nan is nan
            total = total + weight * parts[name]
    return Rewards(total, parts)


def rubric_reward(one: Answered) -> float:
    """The rubric's points over the ten there are."""
    return rubric.score(one.question, one.solution, one.answer, one.response, one.ended).total / 10
