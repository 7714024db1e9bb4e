"""Win rates by hand."""

import pandas as pd
import pytest

from tasks.language.reporting.comparing import win_rates


def answers(greedy, *sampled):
    """Each column is a problem, with the rubric points of its greedy and its sampled answers."""
    rows = [
        {"problem_id": f"{problem}", "temperature": float(sample > 0), "sample": max(0, sample - 1), "rubric": points}
        for sample, scores in enumerate([greedy, *sampled])
        for problem, points in enumerate(scores)
    ]
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


def test_win_rates_by_hand():
    base = answers([5, 5, 5], [0, 9, 2], [9, 9, 2])
    other = answers([5, 6, 4], [9, 9, 9], [8, 9, 0])
    found = win_rates({"sft": base, "dpo": other}, {"sft": 1.0, "dpo": 1.0}, "sft", ["t1.0"])
    assert list(found) == ["dpo"]
    assert found["dpo"]["win_rate_greedy"].mean == pytest.approx((0.5 + 1 + 0) / 3)
    # Problem 0: 9 beats 0 and ties with 9, 8 beats 0 and loses to 9 (paired by place it would be 1/2); problem 1: ties;
    # problem 2: 9 wins twice, 0 loses twice.
    assert found["dpo"]["win_rate_sampled_t1.0"].mean == pytest.approx((2.5 / 4 + 1 / 2 + 1 / 2) / 3)
