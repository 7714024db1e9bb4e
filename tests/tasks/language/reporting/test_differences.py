import numpy as np
import pandas as pd
import pytest

from tasks.common.estimates import CHANCE, Changes
from tasks.common.paired_intervals import mcnemar_p_value
from tasks.language.reporting.differences import (
    FEWEST,
    compute_differences,
    compute_gains_over_greedy,
    compute_holm_differences,
)


def table(problems="abcd", **columns):
    return pd.DataFrame(columns, index=list(problems), dtype=float)


def answered(gained, lost, both=20):
    """Right or wrong of a policy and of the baseline, on problems of which some are gained and some lost."""
    ours = [1.0] * (gained + both) + [0.0] * lost
    theirs = [0.0] * gained + [1.0] * (both + lost)
    return np.array(ours), np.array(theirs)


def test_differences_by_hand():
    ours = table(strict_greedy=[1, 1, 0, 1], rubric_greedy=[8, 5, 2, 9], own=[1, 1, 1, 1])
    base = table("dcba", strict_greedy=[1, 1, 0, 0], rubric_greedy=[8, 3, 5, 6], other=[0, 0, 0, 0])
    found = compute_differences({"dpo": ours}, base, fewest=2)["dpo"]
    assert set(found) == {"strict_greedy", "rubric_greedy"}
    greedy, points = found["strict_greedy"], found["rubric_greedy"]
    assert (greedy.changes.gained, greedy.changes.lost) == (2, 1)
    assert (greedy.estimate.mean, greedy.interval_sign) == (0.25, 0)
    assert greedy.p == mcnemar_p_value(2, 1)
    assert points.changes is None
    assert points.estimate.mean == (8 + 5 + 2 + 9 - 6 - 5 - 3 - 8) / 4
    assert greedy.numbers().keys() == {"mean", "low", "high", "gained", "lost", "p"}
    assert points.numbers().keys() == {"mean", "low", "high", "p"}


def test_mark_interval_and_p_agree_and_are_corrected_for_the_number_of_policies():
    """15 gained and 5 lost: p 0.025, which stands alone and does not among three of which two are level."""
    alone = compute_holm_differences({"grpo": answered(15, 5)})["grpo"]
    assert alone.p == pytest.approx(0.0253, abs=1e-4)
    assert (alone.interval_sign, alone.chance) == (1, CHANCE)
    family = {"grpo": answered(15, 5), "dpo": answered(6, 6), "ppo": answered(7, 6)}
    found = compute_holm_differences(family)
    assert found["grpo"].p == pytest.approx(3 * 0.0253, abs=3e-4)
    assert found["grpo"].interval_sign == 0
    for change in found.values():
        assert (change.interval_sign != 0) == (change.p < CHANCE)
        assert change.chance == pytest.approx(CHANCE / 3)


def test_a_split_of_which_p_is_above_5_percent_has_no_side():
    """30 gained and 17 lost: p 0.058. A bootstrap interval of this difference began above 0."""
    change = compute_holm_differences({"grpo": answered(30, 17)})["grpo"]
    assert change.p == pytest.approx(0.058, abs=5e-4)
    assert change.interval_sign == 0


def test_a_small_gain_on_every_problem_is_sure_and_so_is_a_loss():
    base = table(range(60), strict_mean_at_8_t1=np.linspace(0, 0.9, 60))
    for step in (0.05, -0.05):
        [found] = compute_differences({"dpo": base + step}, base)["dpo"].values()
        assert found.interval_sign == np.sign(step)
    [found] = compute_differences({"dpo": base}, base)["dpo"].values()
    assert (found.interval_sign, found.estimate.mean, found.p) == (0, 0, 1.0)


def test_equal_within_a_margin_is_a_matter_of_the_interval():
    close, wide = (
        compute_holm_differences({"dpo": answered(5, 5, 2000)})["dpo"],
        compute_holm_differences({"dpo": answered(5, 5, 50)})["dpo"],
    )
    assert close.is_within_margin(0.01)
    assert not wide.is_within_margin(0.01)
    assert not close.is_within_margin(0.001)


def test_of_fewer_problems_nothing_is_tested():
    few = compute_holm_differences({"dpo": answered(FEWEST - 21, 0)})["dpo"]
    assert (few.interval_sign, few.p) == (0, None)
    assert few.numbers() == {"mean": pytest.approx((FEWEST - 21) / (FEWEST - 1)), "gained": FEWEST - 21, "lost": 0}
    assert compute_holm_differences({"dpo": answered(FEWEST - 20, 0)})["dpo"].interval_sign == 1


def test_problems_that_one_lacks_count_for_neither():
    base = table("abcd", strict_greedy=[0, 0, 1, 1])
    found = compute_differences({"dpo": table("dbx", strict_greedy=[0, 1, 1])}, base)["dpo"]["strict_greedy"]
    assert found.changes == Changes(1, 1, 1.0)
    with pytest.raises(ValueError, match="share none"):
        compute_differences({"dpo": table("x", strict_greedy=[1])}, base)


def test_a_measure_that_a_task_does_not_have_is_left_out():
    base = table(strict_greedy=[0, 0, 1, 1], gold_greedy=[np.nan] * 4)
    assert set(compute_differences({"dpo": base}, base)["dpo"]) == {"strict_greedy"}


def test_over_greedy_by_hand():
    values = table(strict_greedy=[1, 0, 0, 0], strict_majority_at_8_t1=[1, 1, 1, 0.5], strict_best_of_8_t1=[0, 1, 1, 0])
    found = compute_gains_over_greedy(values, ["strict_majority_at_8_t1", "strict_best_of_8_t1"])
    assert found["strict_majority_at_8_t1"].estimate.mean == 2.5 / 4
    assert found["strict_majority_at_8_t1"].changes is None, "half a point, by a tie"
    assert (found["strict_best_of_8_t1"].changes.gained, found["strict_best_of_8_t1"].changes.lost) == (2, 1)
