"""The reward for following instructions that a program can check."""

import math

from tasks.language.rewards.constraints import compute_satisfied_share, find_constraints_fault, has_constraints
from tasks.language.rewards.reward import AnsweredProblem, ByColumns, reward

METRICS = {
    "constraints": "The mean share of their constraints that the samples keep, from 0 to 1, of prompts that have "
    "some; 0 in a step without.",
    "all_constraints": "The share of the samples that keep all their constraints, of prompts that have some; 0 in "
    "a step without.",
}


def score_all_kept(share: float) -> float:
    """1 where the share is all of them, else 0; nan of nan."""
    return share if math.isnan(share) else float(share == 1)


@reward(columns=ByColumns(has_constraints, find_constraints_fault), further={"all_constraints": score_all_kept})
def constraints(answered: AnsweredProblem) -> float:
    """The share of the prompt's constraints that the response keeps."""
    return compute_satisfied_share(answered.response, answered.columns)
