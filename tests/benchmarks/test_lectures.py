"""Verdicts follow from intervals alone."""

import pytest

from benchmarks import lectures, search

UP, DOWN, OPEN = (0.2, 0.1, 0.3), (-0.2, -0.3, -0.1), (0.1, -0.1, 0.3)


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([UP], "holds"),
        ([UP, UP], "holds on all 2"),
        ([DOWN], "does not"),
        ([OPEN], "undecided"),
        ([OPEN, OPEN], "undecided"),
        ([UP, DOWN, OPEN], "holds on 1, does not on 1, undecided on 1 of 3"),
        ([DOWN, OPEN], "does not on 1, undecided on 1 of 2"),
        ([(0.03, 0.0, 0.07)], "undecided"),
        ([], "no interval, no verdict"),
    ],
)
def test_a_verdict(differences, verdict):
    assert lectures.format_claim_verdict(differences) == verdict


def test_a_search_beats_greedy_answers_by_its_interval():
    greedy = {"method": "greedy", "samples": 1, "right": 70.0, "low": 66.0, "high": 74.0}
    small = [
        {**greedy, "right": 27.0, "low": 23.0, "high": 31.0},
        {"method": "beam", "samples": 64, "right": 51.0, "low": 47.0},
    ]
    result = {
        "large": [greedy, {"method": "majority", "samples": 8, "right": 72.0, "over_greedy": [2.0, -1.0, 5.0]}],
        "small": small,
    }
    assert search.format_policy_verdict(result, "large").endswith("no method whose interval was kept.")
    assert search.format_policy_verdict(result, "small") == (
        "Beyond chance better than greedy answers: beam. The larger policy's greedy answers are 19 points above "
        "the best of it."
    )
    result["large"][1]["over_greedy"] = [2.0, 0.5, 5.0]
    assert search.format_policy_verdict(result, "large").endswith("greedy answers: majority.")
