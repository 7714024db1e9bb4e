import math

import numpy as np
import pytest

from tasks.language.rewards.ranking_accuracy import (
    STRATA,
    compute_order_accuracy,
    compute_order_agreement,
    compute_pair_order_agreement,
    has_worked_steps,
)


def test_ordered_rightly_by_hand():
    """Right, right, wrong, tied; a pair with equal true points is left out, whatever its rewards."""
    assert compute_order_agreement([0.1, -3.0, 2.0, 0.0, 5.0], [4, -1, -2, 7, 0]).tolist() == [1, 1, 0, 0.5]


def test_accuracy_leaves_true_ties_out_of_its_denominator():
    assert compute_order_accuracy([1.0, 1.0, -1.0, 1.0], [1, 2, 3, 0]) == pytest.approx(2 / 3)
    assert compute_order_accuracy([1.0, 1.0, -1.0, 1.0], [1, 2, 3, 0]) != pytest.approx(2 / 4)  # ties counted as pairs
    assert math.isnan(compute_order_accuracy([1.0], [0]))


def test_a_constant_reward_is_half_right():
    assert compute_order_accuracy(np.zeros(4), [1, -1, 2, 5]) == 0.5


@pytest.mark.parametrize(
    ("response", "expected"),
    [("3 + 4 = 7\n#### 7", True), ("Three plus four is 7.\n#### 7", False), ("#### 7", False), ("3 plus 4 is 7", True)],
)
def test_steps_are_equations(response, expected):
    assert has_worked_steps(response) is expected


ANSWERS = ["3 + 4 = 7\n#### 7", "3 + 4 = 8\n#### 8", "#### 7", "#### 9", "#### 9"]
SCORES = [10, 4, 6, 1, 1]


def test_pairs_of_one_problem_by_hand():
    """This reward ranks answers with steps above those without, and the two with steps in the wrong order."""
    found = compute_pair_order_agreement([1.0, 2.0, 0.5, 0.0, 0.0], SCORES, ANSWERS)
    assert set(found) == {"all", *STRATA}
    assert found["both_show_steps"].tolist() == [0]
    # Each of two answers with steps against three without: 10 points are above all, 4 above both with 1 and below the
    # one with 6.
    assert sorted(found["one_shows_steps"].tolist()) == [0, 1, 1, 1, 1, 1]
    assert found["neither_shows_steps"].tolist() == [1, 1], "equal texts are no pair"
    assert sorted(found["all"].tolist()) == [0, 0, 1, 1, 1, 1, 1, 1, 1]


def test_one_answer_has_no_pairs():
    assert all(len(values) == 0 for values in compute_pair_order_agreement([1.0], [3], ["#### 3"]).values())


def test_the_order_of_the_answers_does_not_matter():
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=5)
    straight = compute_pair_order_agreement(rewards, SCORES, ANSWERS)
    back = compute_pair_order_agreement(rewards[::-1], SCORES[::-1], ANSWERS[::-1])
    assert {name: sorted(values) for name, values in straight.items()} == {n: sorted(v) for n, v in back.items()}
