"""How well a reward orders answers, separately for answers that show their steps and answers that do not.

An answer shows steps where `equations` finds one in it. Most of what a reward model of average accuracy knows may be
that an answer with steps beats one without; whether it can tell right steps from wrong ones shows only where both
answers have steps.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasks.language.rewards.equations import parse_equations

STRATA = ("neither_shows_steps", "one_shows_steps", "both_show_steps")  # of a pair, by how many of its answers do


def has_worked_steps(response: str) -> bool:
    """Whether the response has a worked step."""
    return bool(parse_equations(response))


def compute_order_agreement(difference: ArrayLike, order: ArrayLike) -> NDArray[np.float64]:
    """Of each pair that `order` tells apart: 1 where `difference` has its sign, 1/2 where it is 0, 0 where it has the
    other.

    Both are (P,), first minus second answer: of their rewards, and of what is held to be true. Pairs whose order is 0
    are left out, so that fewer may come back.
    """
    signs = np.sign(np.asarray(difference, dtype=np.float64))
    wanted = np.sign(np.asarray(order, dtype=np.float64))
    right: NDArray[np.float64] = (1 + (signs * wanted)[wanted != 0]) / 2
    return right


def compute_order_accuracy(difference: ArrayLike, order: ArrayLike) -> float:
    """Share of the pairs (P,) that `difference` orders as `order` does, a tie being half right; nan where there is
    none.
    """
    right = compute_order_agreement(difference, order)
    return float(right.mean()) if len(right) else float("nan")


def compute_pair_order_agreement(
    rewards: Sequence[float], scores: Sequence[float], responses: Sequence[str]
) -> dict[str, NDArray[np.float64]]:
    """The answers to one problem, pair by pair: what `compute_order_agreement` says of all pairs, and of those of each
    stratum.

    `rewards` are held against `scores`, such as the rubric's. Keys are `all` and STRATA; two equal texts are no pair.
    """
    shown = [has_worked_steps(response) for response in responses]
    pairs = [(a, b) for a, b in combinations(range(len(responses)), 2) if responses[a] != responses[b]]
    first, second = (np.array([pair[side] for pair in pairs], dtype=int) for side in (0, 1))
    reward_array = np.asarray(rewards, dtype=np.float64)
    score_array = np.asarray(scores, dtype=np.float64)
    difference = reward_array[first] - reward_array[second]
    order = score_array[first] - score_array[second]
    steps = np.asarray(shown, dtype=int)[first] + np.asarray(shown, dtype=int)[second]
    strata = {name: compute_order_agreement(difference[steps == k], order[steps == k]) for k, name in enumerate(STRATA)}
    return {"all": compute_order_agreement(difference, order), **strata}
