from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.common.estimates import (
    best_of_k_accuracy,
    bootstrap_mean,
    bootstrap_ratio,
    compute_win_values,
    estimate_share,
    majority_vote_accuracy,
    pass_at_k,
    resample_means,
)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_k_is_the_mean_over_all_subsets(outcomes, data):
    k = data.draw(st.integers(1, len(outcomes)))
    subsets = list(combinations(outcomes, k))
    expected = sum(any(subset) for subset in subsets) / len(subsets)
    assert pass_at_k([sum(outcomes)], len(outcomes), k)[0] == pytest.approx(expected)


def test_pass_at_k_by_hand():
    # 4 samples, k = 2, of 6 pairs: with 1 right 3 hold it, with 2 right 5; the plug-in 1 - (3/4)^2 = 0.44 is biased
    np.testing.assert_allclose(pass_at_k([0, 1, 2, 4], 4, 2), [0, 1 / 2, 5 / 6, 1])
    with pytest.raises(ValueError, match="pass@5 needs at least 5 samples"):
        pass_at_k([1], 4, 5)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["7", "7", "8"], 1),
        (["8", "8", "7"], 0),
        (["7", "8"], 1 / 2),
        (["7", "8", "9", None, None, None], 1 / 3),  # an empty answer has no vote
        (["8", "9"], 0),
        ([None, None], 0),
        ([], 0),
    ],
)
def test_majority(answers, expected):
    assert majority_vote_accuracy(answers, "7") == pytest.approx(expected)


def test_win_values():
    np.testing.assert_array_equal(compute_win_values([3, 2, 1], [1, 2, 3]), [1, 0.5, 0])


def test_share_is_wilsons_interval_on_zeros_and_ones():
    found = estimate_share([1] * 10 + [0] * 90)  # Wilson (1927) for 10 of 100, as in published tables
    assert (found.mean, found.low, found.high) == pytest.approx((0.1, 0.0552, 0.1744), abs=1e-4)


def test_share_leaves_room_beyond_none_and_all():
    none, everything = estimate_share([0.0] * 500), estimate_share([1.0] * 500)
    assert none.low == 0
    assert none.high == pytest.approx(0.0076, abs=1e-4)  # z^2 / (n + z^2)
    assert (everything.low, everything.high) == pytest.approx((1 - none.high, 1), abs=1e-9)


def test_share_of_averages_is_tighter_than_of_single_samples():
    rng = np.random.default_rng(0)
    single, averaged = estimate_share(rng.random(400) < 0.3), estimate_share((rng.random((400, 8)) < 0.3).mean(axis=1))
    assert averaged.high - averaged.low < 0.5 * (single.high - single.low)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_share_is_ordered_and_within_bounds(values):
    found = estimate_share(values)
    assert 0 <= found.low <= found.mean <= found.high <= 1 + 1e-12


@pytest.mark.parametrize("interval", [estimate_share, lambda values: bootstrap_mean(values, 0, 200)])
def test_intervals_cover(interval):
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(200):
        found = interval((rng.random(120) < 0.3).astype(float))
        hits += found.low <= 0.3 <= found.high
    assert 180 <= hits <= 199  # 95 % of 200 is 190


def test_bootstrap_is_seeded_and_near_the_normal_interval():
    values = np.random.default_rng(1).normal(3.0, 2.0, size=400)
    found = bootstrap_mean(values, 7, 2000)
    assert found == bootstrap_mean(values, 7, 2000)
    assert found != bootstrap_mean(values, 8, 2000)
    half = 1.96 * values.std() / 20
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.02)


@pytest.mark.parametrize("values", [[], [[1.0]]])
def test_one_value_a_problem(values):
    with pytest.raises(ValueError, match="one value for each problem"):
        estimate_share(values)


def test_best_of_by_hand():
    scores = [[1.0, 3.0, 2.0], [2.0, 2.0, 1.0], [-1.0, -3.0, -2.0]]
    correct = [[0, 1, 0], [1, 0, 1], [0, 1, 1]]
    np.testing.assert_array_equal(best_of_k_accuracy(scores, correct), [1, 1 / 2, 0])


def test_the_paired_interval_by_hand():
    """With two problems a quarter of the draws have the first twice, a quarter the second twice, and half have both."""
    found = bootstrap_mean(np.array([0.9, 0.3]) - np.array([0.5, 0.1]), 0, 4000)
    assert (found.mean, found.low, found.high) == pytest.approx((0.3, 0.2, 0.4))
    draws = resample_means([[0.4], [0.2]], 0, 4000)[:, 0]
    shares = [np.isclose(draws, value).mean() for value in (0.2, 0.3, 0.4)]
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.03)


def test_pairing_sees_what_two_intervals_hide():
    """Every problem gains a tenth, hard or easy: the paired interval is a point, while the policies' own intervals
    overlap widely.
    """
    base = np.linspace(0, 0.9, 50)
    ours = base + 0.1
    assert bootstrap_mean(ours - base, 0, 500).low == pytest.approx(0.1)
    assert bootstrap_mean(ours, 0, 500).low < bootstrap_mean(base, 0, 500).high


def test_columns_share_their_draws():
    values = np.random.default_rng(0).random((40, 2))
    both = resample_means(values, 3, 20)
    np.testing.assert_allclose(both[:, 1], resample_means(values[:, 1:], 3, 20)[:, 0])
    np.testing.assert_allclose(both[:, 0] - both[:, 1], resample_means(values[:, :1] - values[:, 1:], 3, 20)[:, 0])


def test_ratio_by_hand():
    """1 of 2 and 3 of 3 are right: 4 of 5, between 1/2 and 1; a problem without any counts for nothing."""
    found = bootstrap_ratio([1, 3, 0], [2, 3, 0], 0, 2000)
    assert (found.mean, found.low, found.high) == pytest.approx((4 / 5, 1 / 2, 1))
