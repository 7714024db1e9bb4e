"""A noisy annotator: ranks responses by their scores with Bradley-Terry noise, ties allowed.

Each score gets Gumbel noise of scale `temperature`: the difference of two such noises is logistic, so one response is
placed above another with probability sigmoid((s_a - s_b) / temperature), which is Bradley-Terry (1952) on scores, and
whole rankings follow Plackett-Luce. A tie margin then takes out the closest calls.
"""

import string
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.language.tables.preferences import LEVELS, STRENGTHS


def sample_noisy_utilities(
    scores: Sequence[float], temperature: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Scores as the annotator perceives them, in the scores' unit (K,); temperature 0 is a perfect annotator."""
    return np.asarray(scores, dtype=np.float64) + temperature * rng.gumbel(size=len(scores))


def group_ties(utilities: NDArray[np.float64], tie_margin: float) -> list[list[int]]:
    """Indices of the responses, best group first; a group's members are ties.

    A group is opened by the best response left and takes in all within `tie_margin` of it (equal ones at margin 0).
    Measured from the group's best and not from neighbour to neighbour, a tie never spans more than the margin.
    """
    groups: list[list[int]] = []
    for index in np.argsort(-utilities, kind="stable").tolist():
        if groups and utilities[groups[-1][0]] - utilities[index] <= tie_margin:
            groups[-1].append(index)
        else:
            groups.append([index])
    return [sorted(group) for group in groups]


def compute_ranks_of_groups(groups: Sequence[Sequence[int]]) -> list[int]:
    """Each response's rank, 1 for the best group, 2 for the next, whatever the sizes of the groups."""
    rank = {index: group_rank for group_rank, group in enumerate(groups, start=1) for index in group}
    return [rank[index] for index in range(len(rank))]


def format_ranking_text(groups: Sequence[Sequence[int]]) -> str:
    """The ranking as people write it, responses lettered in the order sampled: `B > C = D > A`."""
    return " > ".join(" = ".join(string.ascii_uppercase[index] for index in group) for group in groups)


def get_strength_label(difference: float, bounds: Sequence[float]) -> str:
    """One of STRENGTHS from utility of a minus utility of b: each of the three bounds that it reaches is one level
    more.
    """
    level = sum(abs(difference) >= bound for bound in bounds)
    return STRENGTHS[level if difference > 0 else len(LEVELS) + level]
