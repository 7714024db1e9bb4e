"""Intervals of paired differences: by hand, by the score test that they invert, and by swapping the sides."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import norm, t

from tasks.common.estimates import Changes, Z
from tasks.common.paired import _standing, bootstrap, outer_tail, right_or_wrong, score

COUNTS = st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 200)).filter(lambda of: sum(of) > 0)


def test_a_published_example():
    """Airway reactivity before and after a transplantation: 1 of 21 children gained, 7 lost (Fagerland et al. 2014, table VI)."""
    found = score(1, 7, 21)
    assert found.mean == pytest.approx(-6 / 21)
    assert (found.low, found.high) == pytest.approx((-0.517, -0.026), abs=5e-4)


@given(COUNTS)
def test_the_bounds_are_roots_of_the_quartic(counts):
    """Tango's bounds without iteration: two real roots of an equation of degree 4 (Yang, Sun and Hardin 2013)."""
    gained, lost, same = counts
    count = gained + lost + same
    net, changed, ratio = gained - lost, gained + lost, count / Z**2
    coefficients = [
        count**2 * (ratio + 1) ** 2,
        -count * net * (ratio + 1) * (4 * ratio + 1),
        2 * net**2 * ratio * (3 * ratio + 2) - count**2 * (changed / Z**2 + 1),
        count * net * (2 * changed / Z**2 + 1) - net**3 * (4 * ratio + 1) / Z**2,
        net**2 * (net**2 / Z**2 - changed) / Z**2,
    ]
    roots = np.roots(coefficients)
    found = score(gained, lost, count)
    for bound in (found.low, found.high):
        if abs(bound) < 1 - 1e-9 and bound != found.mean:
            assert np.abs(roots - bound).min() < 1e-5


@given(COUNTS)
def test_the_bounds_are_where_the_score_test_begins_to_reject(counts):
    gained, lost, same = counts
    count = gained + lost + same
    found = score(gained, lost, count)
    assert -1 <= found.low <= found.mean <= found.high <= 1
    for bound, sign in ((found.low, 1), (found.high, -1)):
        if abs(bound) < 1 - 1e-6:
            assert _standing(gained, lost, count, bound) == pytest.approx(sign * Z, abs=1e-4)
    assert (found.low > 0) == (gained > lost and (gained - lost) ** 2 > Z**2 * (gained + lost)), "McNemar's test"


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 60), st.floats(-0.9, 0.9))
def test_the_statistic_takes_the_likeliest_share(gained, lost, same, difference):
    """Tango's root is the maximum of the trinomial likelihood at the supposed difference, found here by search."""
    count = gained + lost + same
    least, most = max(0.0, -difference), (1 - difference) / 2

    def unlikely(share):
        shares = np.clip([share + difference, share, 1 - 2 * share - difference], 1e-300, None)
        return -float(np.dot([gained, lost, same], np.log(shares)))

    found = minimize_scalar(unlikely, bounds=(least, most), method="bounded", options={"xatol": 1e-12}).x
    variance = count * (2 * found + difference * (1 - difference))
    assume(variance > 1e-6)  # all problems gained, or all lost, for certain
    expected = (gained - lost - count * difference) / np.sqrt(variance)
    assert _standing(gained, lost, count, difference) == pytest.approx(expected, rel=1e-3, abs=1e-3)


@given(COUNTS)
def test_swapping_the_sides_turns_the_signs(counts):
    gained, lost, _ = counts
    there, back = score(gained, lost, sum(counts)), score(lost, gained, sum(counts))
    assert (back.mean, back.low, back.high) == (-there.mean, -there.high, -there.low)


@settings(max_examples=10)
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30))
def test_swapping_turns_the_signs_of_the_bootstrap_too(values):
    there, back = bootstrap(np.stack([values, -np.asarray(values)], axis=1))
    assert (back.mean, back.low, back.high) == pytest.approx((-there.mean, -there.high, -there.low), abs=1e-9)


def test_only_right_and_wrong_are_counted():
    assert right_or_wrong([1, 1, 0, 1], [0, 1, 1, 1]) == (score(1, 1, 4), Changes(1, 1, 1.0))
    assert right_or_wrong([0.5, 1, 0, 1], [0, 1, 1, 1]) is None


@pytest.mark.parametrize("count", [2, 5, 12, 50, 500])
def test_the_tail_is_that_of_students_distribution(count):
    expected = norm.cdf(-t.ppf(0.975, count - 1) * (count / (count - 1)) ** 0.5)
    assert outer_tail(count) == pytest.approx(expected, rel=2e-3)


def test_the_bootstrap_of_many_is_near_students_interval():
    values = np.random.default_rng(1).normal(3.0, 2.0, size=(400, 1))
    [found] = bootstrap(values)
    half = t.ppf(0.975, 399) * values.std(ddof=1) / 20
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.02)
    assert bootstrap(values) == [found], "the same draws each time"
    beside = bootstrap(np.hstack([values[::-1], values]))[1]
    assert (beside.low, beside.high) == pytest.approx((found.low, found.high)), "whatever stands beside it"
    assert bootstrap([[0.25]])[0].low == 0.25
