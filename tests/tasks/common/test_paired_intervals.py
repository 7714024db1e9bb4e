"""Intervals of paired differences: by hand, by the score test that they invert, and by swapping the sides."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import norm, t, ttest_1samp

from tasks.common.estimates import CHANCE, Changes, Estimate, Z
from tasks.common.paired_intervals import (
    _score_statistic,
    bootstrap_mean_differences,
    compare_binary_outcomes,
    compute_tail_share,
    holm_correction,
    mcnemar_p_value,
    smallest_detectable_difference,
    student_t_interval,
    tango_score_interval,
)

COUNTS = st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 200)).filter(lambda of: sum(of) > 0)


def test_a_published_example():
    """Airway reactivity before and after a transplantation: 1 of 21 children gained, 7 lost (Fagerland et al. 2014,
    table VI).
    """
    found = tango_score_interval(1, 7, 21)
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
    found = tango_score_interval(gained, lost, count)
    for bound in (found.low, found.high):
        if abs(bound) < 1 - 1e-9 and bound != found.mean:
            assert np.abs(roots - bound).min() < 1e-5


@given(COUNTS)
def test_the_bounds_are_where_the_score_test_begins_to_reject(counts):
    gained, lost, same = counts
    count = gained + lost + same
    found = tango_score_interval(gained, lost, count)
    assert -1 <= found.low <= found.mean <= found.high <= 1
    for bound, sign in ((found.low, 1), (found.high, -1)):
        if abs(bound) < 1 - 1e-6:
            assert _score_statistic(gained, lost, count, bound) == pytest.approx(sign * Z, abs=1e-4)
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
    assert _score_statistic(gained, lost, count, difference) == pytest.approx(expected, rel=1e-3, abs=1e-3)


@given(COUNTS)
def test_swapping_the_sides_turns_the_signs(counts):
    gained, lost, _ = counts
    there, back = tango_score_interval(gained, lost, sum(counts)), tango_score_interval(lost, gained, sum(counts))
    assert (back.mean, back.low, back.high) == (-there.mean, -there.high, -there.low)


@settings(max_examples=10)
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30))
def test_swapping_turns_the_signs_of_the_bootstrap_too(values):
    there, back = bootstrap_mean_differences(np.stack([values, -np.asarray(values)], axis=1))
    assert (back.mean, back.low, back.high) == pytest.approx((-there.mean, -there.high, -there.low), abs=1e-9)


def test_only_right_and_wrong_are_counted():
    assert compare_binary_outcomes([1, 1, 0, 1], [0, 1, 1, 1]) == (tango_score_interval(1, 1, 4), Changes(1, 1, 1.0))
    assert compare_binary_outcomes([0.5, 1, 0, 1], [0, 1, 1, 1]) is None


@pytest.mark.parametrize("count", [2, 5, 12, 50, 500])
def test_the_tail_is_that_of_students_distribution(count):
    expected = norm.cdf(-t.ppf(0.975, count - 1) * (count / (count - 1)) ** 0.5)
    assert compute_tail_share(count) == pytest.approx(expected, rel=2e-3)


def test_the_bootstrap_of_many_is_near_students_interval():
    values = np.random.default_rng(1).normal(3.0, 2.0, size=(400, 1))
    [found] = bootstrap_mean_differences(values)
    half = t.ppf(0.975, 399) * values.std(ddof=1) / 20
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.02)
    assert bootstrap_mean_differences(values) == [found], "the same draws each time"
    beside = bootstrap_mean_differences(np.hstack([values[::-1], values]))[1]
    assert (beside.low, beside.high) == pytest.approx((found.low, found.high)), "whatever stands beside it"
    assert bootstrap_mean_differences([[0.25]])[0].low == 0.25


def test_the_score_test_by_hand():
    """McNemar's statistic of 9 and 25 changes is 16^2 / 34 = 7.53: p 0.0061 by the table of chi squared with one degree
    of freedom.
    """
    assert mcnemar_p_value(9, 25) == mcnemar_p_value(25, 9) == pytest.approx(0.00607, abs=1e-5)
    assert mcnemar_p_value(5, 5) == mcnemar_p_value(0, 0) == 1.0


@given(COUNTS, st.sampled_from([0.05, 0.025, 0.01]))
def test_the_interval_leaves_0_out_exactly_where_p_is_below_its_level(counts, chance):
    gained, lost, _ = counts
    found = tango_score_interval(gained, lost, sum(counts), chance)
    assert (found.low > 0 or found.high < 0) == (mcnemar_p_value(gained, lost) < chance)


@given(st.lists(st.integers(-4, 4), min_size=2, max_size=40), st.sampled_from([0.05, 0.01]))
def test_so_does_students(values, chance):
    found, p = student_t_interval(values, chance)
    assert found.low <= found.mean <= found.high
    assert (found.low > 0 or found.high < 0) == (p < chance)


def test_students_interval_and_p_are_those_of_the_t_test():
    values = np.random.default_rng(3).normal(0.3, 1.0, 40)
    found, p = student_t_interval(values)
    reference = ttest_1samp(values, 0.0)
    limits = reference.confidence_interval()
    assert (found.low, found.high, p) == pytest.approx((limits.low, limits.high, reference.pvalue))
    assert student_t_interval([0.5, 0.5, 0.5]) == (Estimate(0.5, 0.5, 0.5), 0.0)
    assert student_t_interval([0.0, 0.0]) == (Estimate(0.0, 0.0, 0.0), 1.0)


def test_holm_by_hand():
    """Of 4 tests the smallest p counts four times, the next three times; 0.02 * 3 = 0.06 is not below 5 %, and nothing
    after it is.
    """
    found = holm_correction([0.02, 0.2, 0.001, 0.021])
    assert found.p == pytest.approx([0.06, 0.2, 0.004, 0.06])
    assert found.chance == pytest.approx(CHANCE / 3)
    assert holm_correction([0.03]).p == [0.03]
    assert (holm_correction([]).p, holm_correction([0.01, 0.02]).chance) == ([], CHANCE), "all are rejected"


@given(st.lists(st.floats(0, 1), max_size=12))
def test_at_holms_level_each_p_alone_says_what_the_adjusted_one_does(values):
    """One level for all intervals: the marks of a table follow from them."""
    assume(all(abs(value * count - CHANCE) > 1e-9 for value in values for count in range(1, 13)))
    found = holm_correction(values)
    assert [p < CHANCE for p in found.p] == [value < found.chance for value in values]
    assert all(adjusted >= value for adjusted, value in zip(found.p, values, strict=True))


def test_without_any_difference_holm_marks_something_in_one_table_of_twenty():
    rng = np.random.default_rng(0)
    marked = np.mean([min(holm_correction(list(rng.random(6))).p) < CHANCE for _ in range(4000)])
    plain = np.mean([min(rng.random(6)) < CHANCE for _ in range(4000)])
    assert marked == pytest.approx(CHANCE, abs=4 * (CHANCE * 0.95 / 4000) ** 0.5)
    assert plain > 0.2


def test_the_smallest_difference_that_is_seen():
    """Of 500 problems of which 11 % change: 2.8 sqrt(0.11 / 500) = 0.0415, and four of five samples find it."""
    found = smallest_detectable_difference(0.11, 500)
    assert found == pytest.approx(0.0415, abs=0.0005)
    rng = np.random.default_rng(0)
    changes = rng.multinomial(500, [(0.11 + found) / 2, (0.11 - found) / 2, 0.89], size=4000)
    assert np.mean([mcnemar_p_value(gained, lost) < CHANCE for gained, lost, _ in changes]) == pytest.approx(
        0.8, abs=0.03
    )
    assert smallest_detectable_difference(0.11, 500, CHANCE / 6) > found
    assert smallest_detectable_difference(0.02, 30) == pytest.approx(0.02), "not even if all of it were gained"
