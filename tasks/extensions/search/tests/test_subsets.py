"""Means over subsets of a problem's samples, against every subset one by one."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.common import estimates
from tasks.extensions.search import subsets

VOTES = st.lists(st.integers(-1, 3), min_size=2, max_size=8)


def over_all(size, budgets, value):
    """The mean of value(places) over all subsets of each budget."""
    return [np.mean([value(list(places)) for places in combinations(range(size), k)]) for k in budgets]


def all_subsets(size, k):
    rows = np.zeros((comb(size, k), size), dtype=bool)
    for row, places in enumerate(combinations(range(size), k)):
        rows[row, list(places)] = True
    return rows


def winner(votes, weights, places, first):
    """The chance of a right answer (1) among the answers that weigh most, by a plain count."""
    sums: dict[int, float] = {}
    for place in places:
        if votes[place] >= 0:
            sums[votes[place]] = sums.get(votes[place], 0.0) + weights[place]
    leaders = [vote for vote, total in sums.items() if total == max(sums.values())]
    if not leaders:
        return 0.0
    return float(leaders[0] == 1) if first else leaders.count(1) / len(leaders)


@given(VOTES)
@settings(max_examples=25)
def test_a_majority_is_that_of_every_subset(votes):
    budgets = range(1, len(votes) + 1)
    expected = over_all(
        len(votes),
        budgets,
        lambda places: estimates.majority_vote_accuracy(
            [votes[place] if votes[place] >= 0 else None for place in places], 1
        ),
    )
    found = subsets.subset_majority_accuracy(np.array(votes), np.array(votes) == 1, budgets)
    assert found == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=2, max_size=8), st.booleans())
@settings(max_examples=25)
def test_the_best_of_n_is_that_of_every_subset(samples, first):
    scores, right = np.array([float(score) for score, _ in samples]), np.array([correct for _, correct in samples])
    budgets = range(1, len(samples) + 1)

    def best(places):
        if first:
            return float(right[max(places, key=lambda place: (scores[place], -place))])
        return estimates.best_of_k_accuracy(scores[None, places], right[None, places])[0]

    found = subsets.best_of_n_accuracy(scores, right, budgets, first=first)
    assert found == pytest.approx(over_all(len(samples), budgets, best), abs=1e-12)


@given(
    st.lists(st.tuples(st.integers(-1, 2), st.sampled_from([0.25, 0.5, 1.0])), min_size=2, max_size=7), st.booleans()
)
@settings(max_examples=25)
def test_a_weighted_vote_is_that_of_every_subset(samples, first):
    votes, weights = (np.array(part) for part in zip(*samples, strict=True))
    budgets = range(1, len(samples) + 1)
    chosen = [all_subsets(len(samples), k) for k in budgets]
    expected = over_all(len(samples), budgets, lambda places: winner(votes, weights, places, first))
    found = subsets.weighted_vote_accuracy(votes, weights, votes == 1, chosen, first=first)
    assert found == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.booleans(), min_size=2, max_size=40))
def test_a_score_that_knows_the_answer_reaches_pass_at_n(right):
    budgets = subsets.list_budgets(len(right))
    found = subsets.best_of_n_accuracy(np.array(right, dtype=float), np.array(right), budgets)
    known = [estimates.pass_at_k([sum(right)], len(right), k)[0] for k in budgets]
    assert found == pytest.approx(known, abs=1e-12)


def test_ties_by_hand():
    """Samples vote 0, 1, 1, 0, and 1 is right: of all four by chance a half, and 0 came first.

    Of the six pairs one is of right votes alone, one of wrong ones, and the four others tie; 0 comes first in the pairs
    with sample 0, and 1 in the two others.
    """
    votes = np.array([0, 1, 1, 0])
    right = votes == 1
    chosen = [all_subsets(4, 2), all_subsets(4, 4)]
    assert subsets.subset_majority_accuracy(votes, right, [2, 4]).tolist() == [pytest.approx((1 + 4 / 2) / 6), 0.5]
    assert subsets.weighted_vote_accuracy(votes, np.ones(4), right, chosen, first=True).tolist() == [3 / 6, 0.0]
    scores = np.array([2.0, 2.0, 1.0, 0.0])
    assert subsets.best_of_n_accuracy(scores, right, [4]).tolist() == [0.5]
    assert subsets.best_of_n_accuracy(scores, right, [4], first=True).tolist() == [0.0]


def test_sixty_four_samples_that_all_differ_but_two():
    """The right answer has two votes and wins a subset that holds both; else it ties with all others in it."""
    votes = np.array([0, 0, *range(1, 63)])
    found = subsets.subset_majority_accuracy(votes, votes == 0, [2, 64])
    both = 1 / comb(64, 2)
    assert found.tolist() == [pytest.approx(both + 2 * 62 / comb(64, 2) / 2), 1.0]


def test_budgets_double_up_to_all_samples():
    assert subsets.list_budgets(64) == [1, 2, 4, 8, 16, 32, 64]
    assert subsets.list_budgets(6) == [1, 2, 4, 6]


def test_random_subsets_have_their_size_and_are_all_equally_likely():
    small, whole = subsets.draw_nested_subsets(4, 6000, [2, 4], (0, 7))
    assert (small.sum(axis=1) == 2).all()
    assert whole.all()
    _, counts = np.unique(small, axis=0, return_counts=True)
    assert len(counts) == 6
    assert abs(counts - 1000).max() < 5 * np.sqrt(6000 / 6 * 5 / 6)
    assert not (subsets.draw_nested_subsets(4, 50, [2], (0, 8))[0] == small[:50]).all(), "each problem has its own"
