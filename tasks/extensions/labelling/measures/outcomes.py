"""What a judgement says of each two answers, so that pairs and rankings, and two judgements of one item, can be set
side by side.
"""

from itertools import combinations
from typing import NamedTuple

from tasks.language.judgements.lines import EditValue, PairwiseValue, RankingValue, StepsValue, Value
from tasks.language.tables.preferences import LEVELS, get_strength_level


class Outcome(NamedTuple):
    """Of two answers of an item, by their places: 1 where the first is better, 1/2 where neither is, 0 where the second
    is.
    """

    first: int
    second: int
    score: float


def compute_signed_strength(strength: str) -> int:
    """A verdict on a pair from -4, b is significantly better, over 0, neither is, to 4, a is significantly better."""
    if strength[1:2] != " ":  # a tie, or both are bad
        return 0
    size = get_strength_level(strength) + 1
    return size if strength[0] == "a" else -size


SCALE = len(LEVELS)  # the greatest value of `scale`


def list_pairwise_outcomes(value: Value) -> list[Outcome]:
    """Of each two answers that the judgement sets side by side; none for steps and edits."""
    if isinstance(value, PairwiseValue):
        step = compute_signed_strength(value.strength)
        return [Outcome(0, 1, 1.0 if step > 0 else 0.0 if step < 0 else 0.5)]
    if isinstance(value, RankingValue):
        return [_compare_ranks(value, *pair) for pair in combinations(range(len(value.ranks)), 2)]
    return []


def _compare_ranks(value: RankingValue, first: int, second: int) -> Outcome:
    ours = value.ranks[first]
    theirs = value.ranks[second]
    return Outcome(first, second, 1.0 if ours < theirs else 0.0 if ours > theirs else 0.5)


def compute_judgement_similarity(value: Value, other: Value) -> float | None:
    """How far two judgements of one item say the same, from 0 to 1; None where that cannot be said.

    Of pairs and rankings: the share of the answers' pairs with the same better one, or with none in both; the level
    does not count. Of steps: the share of the steps judged by both that have the same label. Of edits it cannot be
    said.
    """
    if isinstance(value, EditValue) or type(value) is not type(other):
        return None
    if isinstance(value, StepsValue) and isinstance(other, StepsValue):
        labels = zip(value.labels, other.labels, strict=True)
        same = [ours == theirs for ours, theirs in labels if ours is not None and theirs is not None]
    else:
        same = [
            ours == theirs
            for ours, theirs in zip(list_pairwise_outcomes(value), list_pairwise_outcomes(other), strict=True)
        ]
    return sum(same) / len(same) if same else None
