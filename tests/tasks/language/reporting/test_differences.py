import numpy as np
import pandas as pd
import pytest

from tasks.common.estimates import Changes
from tasks.language.reporting.differences import differences, over_greedy


def table(problems="abcd", **columns):
    return pd.DataFrame(columns, index=list(problems), dtype=float)


def test_differences_by_hand():
    ours = table(strict_greedy=[1, 1, 0, 1], rubric_greedy=[8, 5, 2, 9], own=[1, 1, 1, 1])
    base = table("dcba", strict_greedy=[1, 1, 0, 0], rubric_greedy=[8, 3, 5, 6], other=[0, 0, 0, 0])
    found = differences(ours, base, 0, 500)
    assert set(found) == {"strict_greedy", "rubric_greedy"}
    greedy, points = found["strict_greedy"], found["rubric_greedy"]
    assert greedy.changes == Changes(gained=2, lost=1, p=1.0)
    assert (greedy.estimate.mean, greedy.side) == (0.25, 0)
    assert (
        -0.75 <= greedy.estimate.low <= -0.5
    )  # of 256 equally likely draws 5 have a mean of -0.75 or less, 19 of -0.5
    assert points.changes is None
    assert points.estimate.mean == (8 + 5 + 2 + 9 - 6 - 5 - 3 - 8) / 4
    assert greedy.numbers().keys() == {"mean", "low", "high", "gained", "lost", "p"}
    assert points.numbers().keys() == {"mean", "low", "high"}


def test_a_small_gain_on_every_problem_is_sure_and_so_is_a_loss():
    base = table(range(60), strict_mean_at_8_t1=np.linspace(0, 0.9, 60))
    for step in (0.05, -0.05):
        [found] = differences(base + step, base, 0, 200).values()
        assert found.side == np.sign(step)
    [found] = differences(base, base, 0, 200).values()
    assert (found.side, found.estimate.mean) == (0, 0)


def test_problems_that_one_lacks_count_for_neither():
    base = table("abcd", strict_greedy=[0, 0, 1, 1])
    [found] = differences(table("dbx", strict_greedy=[0, 1, 1]), base, 0, 100).values()
    assert found.changes == Changes(1, 1, 1.0)
    with pytest.raises(ValueError, match="share none"):
        differences(table("x", strict_greedy=[1]), base, 0, 100)


def test_over_greedy_by_hand():
    values = table(strict_greedy=[1, 0, 0, 0], strict_majority_at_8_t1=[1, 1, 1, 0.5], strict_best_of_8_t1=[0, 1, 1, 0])
    found = over_greedy(values, {"vote": "strict_majority_at_8_t1", "best": "strict_best_of_8_t1"}, 0, 100)
    assert found["vote"].estimate.mean == 2.5 / 4
    assert found["vote"].changes is None, "half a point, by a tie"
    assert found["best"].changes == Changes(2, 1, 1.0)
