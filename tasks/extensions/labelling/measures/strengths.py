"""Bradley-Terry strengths of the answers' sources, such as two policies: who wins how often against whom, on one scale.

Bradley and Terry (1952): i is better than j with probability sigmoid(s_i - s_j); a tie counts as half a win of each.
The strengths sum to 0. Their intervals are of the sandwich form, with the judgements of one item as one observation,
since they are not independent.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.common.estimates import Z

PRIOR = 0.5  # wins and losses against a side of strength 0, where wins alone would give no finite strengths
STEPS = 100  # of Newton's method, which needs about ten


class Comparison(NamedTuple):
    """One side against another: 1 where the first is better, 1/2 for a tie, 0 where the second is.

    `group` is the item.
    """

    first: str
    second: str
    score: float
    group: Hashable


@dataclass(frozen=True)
class Strength:
    """A side's strength in log-odds with its 95 % interval, and what it follows from.

    Where a side never loses against those that it does not also lose to in turn, its strength has no upper bound:
    `high` is infinite and `strength` is the estimate with half a win and half a loss against an average side added to
    each; the same below.
    """

    name: str
    strength: float
    low: float
    high: float
    wins: int
    ties: int
    losses: int


def estimate_bradley_terry_strengths(comparisons: Sequence[Comparison]) -> list[Strength]:
    """All sides, the strongest first; comparisons of a side with itself say nothing and are left out."""
    contests = [comparison for comparison in comparisons if comparison.first != comparison.second]
    names = sorted({name for comparison in contests for name in (comparison.first, comparison.second)})
    if not names:
        return []
    side_index = {name: index for index, name in enumerate(names)}
    pairs = np.array([(side_index[comparison.first], side_index[comparison.second]) for comparison in contests])
    scores = np.array([comparison.score for comparison in contests])
    above, below = _compute_unbounded_side_flags(len(names), pairs, scores)
    prior = PRIOR if any(above) or any(below) else 0.0
    fitted = _fit_strengths(len(names), pairs, scores, prior)
    deviations = _compute_standard_errors(fitted, pairs, scores, [comparison.group for comparison in contests], prior)
    rows = [
        Strength(
            name,
            float(fitted[index]),
            -math.inf if below[index] else float(fitted[index] - Z * deviations[index]),
            math.inf if above[index] else float(fitted[index] + Z * deviations[index]),
            *_count_wins_ties_losses(index, pairs, scores),
        )
        for index, name in enumerate(names)
    ]
    return sorted(rows, key=lambda row: (-row.strength, row.name))


def _count_wins_ties_losses(index: int, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> tuple[int, int, int]:
    side_scores = np.concatenate([scores[pairs[:, 0] == index], 1 - scores[pairs[:, 1] == index]])
    return int((side_scores == 1).sum()), int((side_scores == 0.5).sum()), int((side_scores == 0).sum())


def _compute_unbounded_side_flags(
    count: int, pairs: NDArray[np.int64], scores: NDArray[np.float64]
) -> tuple[list[bool], list[bool]]:
    """Which sides' strengths have no upper, and which no lower bound of K.

    They are finite where each side has beaten each other, by way of others (Ford 1957). Otherwise who is not beaten by
    some side, even by way of others, can be ever stronger than it.
    """
    beats = np.eye(count, dtype=bool)
    for (first, second), score in zip(pairs.tolist(), scores.tolist(), strict=True):
        beats[first, second] |= score > 0
        beats[second, first] |= score < 1
    for middle in range(count):
        beats |= beats[:, middle, None] & beats[None, middle, :]
    sides = range(count)
    return [not beats[:, side].all() for side in sides], [not beats[side].all() for side in sides]


def _fit_strengths(
    count: int, pairs: NDArray[np.int64], scores: NDArray[np.float64], prior: float
) -> NDArray[np.float64]:
    """The most likely strengths (K,) by Newton's method."""
    strength = np.zeros(count)
    for _ in range(STEPS):
        gradient, information = _compute_gradient_and_information(strength, pairs, scores, prior)
        step = np.linalg.pinv(information, hermitian=True) @ gradient
        strength = strength + step / max(1.0, float(np.abs(step).max()))  # far from the end a step is too long
        if np.abs(step).max() < 1e-10:
            break
    centred: NDArray[np.float64] = strength - strength.mean()
    return centred


def _compute_gradient_and_information(
    strength: NDArray[np.float64], pairs: NDArray[np.int64], scores: NDArray[np.float64], prior: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The log-likelihood's gradient (K,) and its negative second derivative (K, K)."""
    count = len(strength)
    (first, second) = pairs.T
    chance = _sigmoid(strength[first] - strength[second])
    gradient = np.zeros(count)
    information = np.zeros((count, count))
    np.add.at(gradient, first, scores - chance)
    np.add.at(gradient, second, chance - scores)
    weight = chance * (1 - chance)
    for rows, columns, sign in ((first, first, 1), (second, second, 1), (first, second, -1), (second, first, -1)):
        np.add.at(information, (rows, columns), sign * weight)
    alone = _sigmoid(strength)
    gradient += prior * (1 - 2 * alone)
    information[np.diag_indices(count)] += 2 * prior * alone * (1 - alone)
    return gradient, information


def _compute_standard_errors(
    strength: NDArray[np.float64],
    pairs: NDArray[np.int64],
    scores: NDArray[np.float64],
    groups: Sequence[Hashable],
    prior: float,
) -> NDArray[np.float64]:
    """Standard errors of the centred strengths (K,): H+ (sum over groups of g g') H+, g being a group's gradient.

    With a prior it is H+ alone, since then the residuals of sides that never lose are next to nothing.
    """
    number = {group: index for index, group in enumerate(dict.fromkeys(groups))}
    group_index = np.array([number[group] for group in groups])
    first, second = pairs.T
    residual = scores - _sigmoid(strength[first] - strength[second])
    gradients = np.zeros((len(number), len(strength)))
    np.add.at(gradients, (group_index, first), residual)
    np.add.at(gradients, (group_index, second), -residual)
    inverse = np.linalg.pinv(_compute_gradient_and_information(strength, pairs, scores, prior)[1], hermitian=True)
    centre = np.eye(len(strength)) - 1 / len(strength)
    if not prior:
        inverse = inverse @ (gradients.T @ gradients) @ inverse
    spread = centre @ inverse @ centre
    deviations: NDArray[np.float64] = np.sqrt(np.diag(spread).clip(min=0))
    return deviations


def _sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    chance: NDArray[np.float64] = 1 / (1 + np.exp(-values))
    return chance
