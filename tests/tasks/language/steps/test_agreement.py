"""Agreement of labels, by hand."""

import pytest

from tasks.language.steps.agreement import compute_label_agreement

TRUTH = [[1, -1, -1], [1, 1], [0, 1]]
LABELS = [[1, -1, 1], [1, 1], [-1, 0]]
SHARES = [[0.75, 0.5, 0.0], [1.0, 0.25], [0.5, 0.5]]


def test_by_hand():
    """Of seven labels two differ in being bad, and of three solutions one has another first wrong step.

    At a half the third, the fifth and the second step fail and pass; of the ten pairs 0.5 and 0.25 against 0.5 tie
    twice and lose once.
    """
    found = compute_label_agreement(LABELS, TRUTH, SHARES)
    assert found == {
        "labels": pytest.approx(5 / 7),
        "first_wrong": pytest.approx(2 / 3),
        "half_right": pytest.approx(5 / 7),
        "auc": pytest.approx((5 + 2 + 2 / 2) / 10),
    }
    assert compute_label_agreement(LABELS, TRUTH, None).keys() == {"labels", "first_wrong"}


def test_without_a_bad_step_there_are_no_pairs():
    assert "auc" not in compute_label_agreement([[1]], [[1]], [[0.5]])
    assert compute_label_agreement([[1]], [[1]], [[0.0]])["half_right"] == 0
