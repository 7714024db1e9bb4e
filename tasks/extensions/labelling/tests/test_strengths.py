"""Bradley-Terry strengths: by hand, where the likelihood is highest, and where a side never loses."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tasks.extensions.labelling.measures.strengths import Comparison, estimate_bradley_terry_strengths

Z = 1.959963984540054


def comparisons(*rows):
    """Each row is first, second, score and how often; every comparison is of another item."""
    found = [(first, second, score) for first, second, score, times in rows for _ in range(times)]
    return [Comparison(*row, number) for number, row in enumerate(found)]


def test_three_to_one_by_hand():
    """The log-odds are log 3, split evenly; the difference's variance is 1/3 + 1, the information's inverse, each
    side's a quarter.
    """
    ours, theirs = estimate_bradley_terry_strengths(comparisons(("x", "y", 1.0, 3), ("x", "y", 0.0, 1)))
    assert (ours.name, ours.wins, ours.ties, ours.losses) == ("x", 3, 0, 1)
    assert (theirs.name, theirs.wins, theirs.ties, theirs.losses) == ("y", 1, 0, 3)
    assert ours.strength == pytest.approx(math.log(3) / 2)
    assert ours.strength - ours.low == pytest.approx(Z * math.sqrt(4 / 3) / 2)
    assert ours.high - ours.strength == pytest.approx(Z * math.sqrt(4 / 3) / 2)
    assert (theirs.strength, theirs.low, theirs.high) == pytest.approx((-ours.strength, -ours.high, -ours.low))


def test_a_tie_is_half_a_win_of_each():
    """Two wins and two ties are three wins of four; residuals 1/4, 1/4, -1/4, -1/4 give variance (4 / 16) / (4 *
    3/16)^2.
    """
    ours, _ = estimate_bradley_terry_strengths(comparisons(("x", "y", 1.0, 2), ("x", "y", 0.5, 2)))
    assert ours.strength == pytest.approx(math.log(3) / 2)
    assert ours.ties == 2
    assert ours.high - ours.strength == pytest.approx(Z * math.sqrt(0.25) / 0.75 / 2)


def test_judgements_of_one_item_are_one_observation():
    """Each item judged twice alike: as wide as if it had been judged once."""
    once = comparisons(("x", "y", 1.0, 3), ("x", "y", 0.0, 1))
    [ours, _], [alone, _] = (
        estimate_bradley_terry_strengths([*once, *reversed(once)]),
        estimate_bradley_terry_strengths(once),
    )
    assert (ours.strength, ours.low, ours.high) == pytest.approx((alone.strength, alone.low, alone.high))


def test_who_is_compared_with_itself_or_with_nobody_says_nothing():
    assert (
        estimate_bradley_terry_strengths([]) == estimate_bradley_terry_strengths([Comparison("x", "x", 1.0, 0)]) == []
    )


def test_a_side_that_never_loses_has_no_upper_bound():
    best, middle, worst = estimate_bradley_terry_strengths(
        comparisons(("x", "y", 1.0, 3), ("y", "z", 1.0, 2), ("z", "y", 1.0, 1))
    )
    assert (best.name, best.high) == ("x", math.inf)
    assert all(map(math.isfinite, (best.strength, best.low, middle.high, worst.high)))
    assert (middle.name, middle.low, worst.name, worst.low) == ("y", -math.inf, "z", -math.inf)


def test_a_side_that_never_loses_by_hand():
    """Three wins of three, and of each side half a win and half a loss against strength 0: the slope at the estimate s
    is

    3 (1 - sigmoid(2 s)) + (1 - 2 sigmoid(s)) / 2 = 0; the information of the difference is 2 w + a with w = 3 p (1 -
    p), a = q (1 - q).
    """
    ours, theirs = estimate_bradley_terry_strengths(comparisons(("x", "y", 1.0, 3)))
    p, q = (1 / (1 + math.exp(-times * ours.strength)) for times in (2, 1))
    assert 3 * (1 - p) + (1 - 2 * q) / 2 == pytest.approx(0.0, abs=1e-9)
    half = Z / math.sqrt(2 * (2 * 3 * p * (1 - p) + q * (1 - q)))
    assert (ours.low, theirs.high) == pytest.approx((ours.strength - half, theirs.strength + half))


def test_two_worlds_that_never_met_have_no_bounds_between_them():
    rows = estimate_bradley_terry_strengths(
        comparisons(("x", "y", 1.0, 3), ("x", "y", 0.0, 1), ("v", "w", 1.0, 1), ("v", "w", 0.0, 1))
    )
    assert {(row.low, row.high) for row in rows} == {(-math.inf, math.inf)}
    assert rows[0].name == "x"


def test_one_tie_bounds_everything():
    rows = estimate_bradley_terry_strengths(comparisons(("x", "y", 1.0, 3), ("x", "y", 0.5, 1)))
    assert all(math.isfinite(row.low) and math.isfinite(row.high) for row in rows)


@hypothesis_settings(max_examples=25)
@given(st.lists(st.tuples(*[st.sampled_from("wxyz")] * 2, st.sampled_from([0.0, 0.5, 1.0])), max_size=40))
def test_any_comparisons_give_the_most_likely_strengths(rows):
    """A tie of each with the next keeps them finite.

    The likelihood is concave: it is highest where each side wins as often as expected.
    """
    rows = [*(row for row in rows if row[0] != row[1]), ("w", "x", 0.5), ("x", "y", 0.5), ("y", "z", 0.5)]
    found = {
        row.name: row.strength
        for row in estimate_bradley_terry_strengths([Comparison(*row, n) for n, row in enumerate(rows)])
    }
    surplus = Counter()
    for first, second, score in rows:
        chance = 1 / (1 + math.exp(found[second] - found[first]))
        surplus.update({first: score - chance, second: chance - score})
    assert [*surplus.values()] == pytest.approx([0.0] * 4, abs=1e-7)
    assert sum(found.values()) == pytest.approx(0.0, abs=1e-9)


def test_intervals_hold_the_truth_in_19_of_20_cases():
    rng, truth, hits = np.random.default_rng(0), np.array([0.5, 0.0, -0.5]), 0
    for _ in range(100):
        pairs = [rng.choice(3, 2, replace=False) for _ in range(100)]
        chances = [1 / (1 + np.exp(truth[b] - truth[a])) for a, b in pairs]
        rows = [
            Comparison("abc"[a], "abc"[b], float(rng.random() < chance), n)
            for n, ((a, b), chance) in enumerate(zip(pairs, chances, strict=True))
        ]
        hits += sum(
            row.low <= truth["abc".index(row.name)] <= row.high for row in estimate_bradley_terry_strengths(rows)
        )
    assert hits / 300 == pytest.approx(0.95, abs=0.025)
