"""Verdicts on expectations: by hand, and Welch's interval as scipy has it."""

import hypothesis.strategies as st
import pytest
from hypothesis import given
from scipy import stats

from tasks.common.errors import StageError
from tasks.common.estimates import estimate_welch_difference
from tasks.offline.reporting.results import VariantResult
from tasks.offline.reporting.verdicts import OfflineVerdict, judge_offline_expectation, summarize_verdicts

NAN = float("nan")
MINUS = "\N{MINUS SIGN}"
DATA = {
    "pole": {
        "dataset": "pole",
        "environment": "Pole",
        "reference": {"minimum": 0.0, "maximum": 200.0},
        "d4rl": None,
        "data": {"mean": 50.0, "best": 120.0},
        "behaviour": {"policy": "medium", "return": 80.0},
    }
}


def result(variant, returns):
    return VariantResult(f"{variant}-pole", "pole", "", variant, NAN, True, tuple(returns))


FOUND = [
    result("CQL", [100.0, 102.0, 104.0]),
    result("DQN", [10.0, 12.0, 14.0]),
    result("AWR", [80.0, 100.0, 120.0]),
    result("BC", [95.0, 100.0, 105.0]),
    result("IQL", [96.0, 98.0, 100.0]),
    result("Q", [90.0]),
]


@pytest.mark.parametrize(
    ("higher", "lower", "came", "told"),
    [
        ("CQL", "DQN", "holds", "As expected, CQL is higher, by 45.0 (42.7 to 47.3)."),
        ("CQL", "AWR", "undecided", f"Undecided: CQL is higher in the mean, by 1.0 ({MINUS}23.5 to 25.5)."),
        ("AWR", "CQL", "undecided", f"Undecided: AWR is lower in the mean, by 1.0 ({MINUS}23.5 to 25.5)."),
        ("DQN", "CQL", "fails", "Against what was expected, DQN is lower, by 45.0 (42.7 to 47.3)."),
        ("AWR", "BC", "undecided", "BC 50.0 ± 6.2. Undecided: the two are equal in the mean."),
        ("Q", "Q", "undecided", "Undecided: the two are equal in the mean."),
        ("data mean", "data mean", "fails", "data mean was expected to be higher, and the two are equal."),
        ("greedy behaviour", "data mean", "holds", "As expected, greedy behaviour is higher, by 15.0."),
        ("CQL", "greedy behaviour", "holds", "As expected, CQL is higher, by 11.0 (8.5 to 13.5)."),
        ("data mean", "DQN", "holds", "pole: data mean 25.0, DQN 6.0 ± 2.5. As expected, data mean is higher, by 19.0"),
        ("CQL", "data best", "fails", "Against what was expected, CQL is lower"),
        ("Q", "DQN", "undecided", "Undecided: Q is higher in the mean, by 39.0 (one seed)."),
        ("Q", "data mean", "undecided", "Q is higher in the mean, by 20.0 (one seed)."),
    ],
)
def test_expectations(higher, lower, came, told):
    verdict = judge_offline_expectation(higher, lower, "pole", FOUND, DATA)
    assert verdict.came == came
    assert told in verdict.sentence


def test_intervals_that_overlap_may_belong_to_a_clear_difference():
    """1.0 +- 2.48 and 5.0 +- 2.48 overlap; their difference is 4 +- 2.27."""
    ones, others = [4.0, 5.0, 6.0], [0.0, 1.0, 2.0]
    found = estimate_welch_difference(ones, others)
    assert (found.low, found.high) == pytest.approx((4 - 2.2669, 4 + 2.2669), abs=1e-4)


VALUES = st.lists(st.floats(-1e3, 1e3).map(lambda x: round(x, 3)), min_size=2, max_size=9)


@pytest.mark.filterwarnings("ignore:Precision loss")
@given(VALUES, VALUES)
def test_the_interval_is_welchs(ones, others):
    found = estimate_welch_difference(ones, others)
    if len({*ones}) == len({*others}) == 1:
        assert found.low == found.high == found.mean
        return
    theirs = stats.ttest_ind(ones, others, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), rel=1e-6, abs=1e-6)


@pytest.mark.filterwarnings("ignore:Precision loss")
@given(VALUES, st.floats(-1e3, 1e3))
def test_a_fact_has_no_spread(values, fact):
    if len({*values}) > 1:
        theirs = stats.ttest_1samp(values, fact).confidence_interval(0.95)
        found = estimate_welch_difference(values, [fact])
        assert (found.low, found.high) == pytest.approx((theirs.low - fact, theirs.high - fact), rel=1e-6, abs=1e-6)


def test_one_value_against_one_bounds_nothing():
    assert estimate_welch_difference([3.0], [1.0]).low == -float("inf")
    with pytest.raises(ValueError, match="one value for each seed"):
        estimate_welch_difference([], [1.0])


def test_one_clear_line_for_an_expectation_of_something_else():
    with pytest.raises(StageError, match=r"expectations: no TD3 on pole; there are CQL, DQN, .*greedy behaviour"):
        judge_offline_expectation("TD3", "DQN", "pole", FOUND, DATA)
    with pytest.raises(StageError, match="expectations: no data set pool; there are pole"):
        judge_offline_expectation("CQL", "DQN", "pool", FOUND, DATA)


@pytest.mark.parametrize(
    ("came", "told"),
    [
        ([], []),
        (["holds", "holds", "fails"], ["Of 3 expectations 2 hold and 1 does not hold."]),
        (["fails", "undecided"], ["Of 2 expectations 1 is undecided and 1 does not hold."]),
        (
            ["holds", "undecided", "fails", "undecided"],
            ["Of 4 expectations 1 holds, 2 are undecided, and 1 does not hold."],
        ),
        (["undecided", "undecided"], ["All 2 expectations are undecided."]),
        (["fails"] * 3, ["None of the 3 expectations holds."]),
        (["holds"], ["The one expectation holds."]),
        (["undecided"], ["The one expectation is undecided."]),
        (["fails"], ["The one expectation does not hold."]),
    ],
)
def test_the_headline_counts(came, told):
    assert summarize_verdicts([OfflineVerdict(one, "") for one in came]) == told
