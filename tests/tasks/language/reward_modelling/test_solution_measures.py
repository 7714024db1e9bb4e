"""Measures of rewards of solutions and steps, by hand."""

import numpy as np
import pandas as pd
import pytest

from tasks.language.reward_modelling import solution_measures
from tasks.language.reward_modelling.solution_measures import (
    area_under_roc,
    compute_best_of_shares,
    compute_first_error_accuracies,
    compute_solution_calibration,
    compute_solution_measures,
)


def test_area_under_roc_by_hand():
    """Of six pairs of a right and a wrong answer: four in order, one tied, one not."""
    scores, right = np.array([0.9, 0.5, 0.3, 0.5, 0.1]), np.array([True, True, False, False, True])
    assert area_under_roc(scores, right) == pytest.approx((2 + 1.5 + 0) / 6)
    assert area_under_roc(-scores, right) == pytest.approx(1 - 3.5 / 6)


def answers(rows):
    return pd.DataFrame(rows, columns=["prompt_id", "reward", "right"])


def test_best_of_by_hand():
    """The best of the first prompt is right, of the second wrong, of the third two share; the fourth has no right
    answer.
    """
    table = answers(
        [
            *[("a", 0.9, True), ("a", 0.2, False), ("b", 0.7, False), ("b", 0.1, True), ("b", 0.2, True)],
            *[("c", 0.5, True), ("c", 0.5, False), ("d", 0.5, False)],
        ]
    )
    expected = {"reward": (1 + 0 + 0.5 + 0) / 4, "chance": (1 / 2 + 2 / 3 + 1 / 2 + 0) / 4, "possible": 3 / 4}
    assert compute_best_of_shares(table) == pytest.approx(expected)


def steps(*rows):
    return [np.array(row) for row in rows]


NOT_BAD = steps([0.9, 0.4, 0.1], [0.9, 0.9, 0.2], [0.8, 0.6], [0.8, 0.3], [0.49])
TRUTH = steps([1, -1, -1], [1, -1, -1], [1, 1], [0, 1], [1])


def test_first_errors_by_hand():
    """The first is found at its step and the second too late; of the three without an error one is left alone."""
    found = compute_first_error_accuracies(NOT_BAD, TRUTH)
    assert found == pytest.approx({"wrong": 1 / 2, "right": 1 / 3, "f1": 2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3)})


def test_known_mistakes_give_another_measure():
    """Any bad step in place of the first, and the arithmetic mean in place of the harmonic one."""
    loose = [np.array([(labels < 0).any()]) * -1 for labels in TRUTH], [steps.min(keepdims=True) for steps in NOT_BAD]
    assert (
        compute_first_error_accuracies(loose[1], loose[0])["wrong"]
        == 1.0
        != compute_first_error_accuracies(NOT_BAD, TRUTH)["wrong"]
    )
    assert compute_first_error_accuracies(NOT_BAD, TRUTH)["f1"] < (1 / 2 + 1 / 3) / 2


def test_a_harmonic_mean_of_nothing_found_is_nothing():
    assert compute_first_error_accuracies(steps([0.9], [0.1]), steps([-1], [1])) == {
        "wrong": 0.0,
        "right": 0.0,
        "f1": 0.0,
    }
    assert compute_first_error_accuracies(steps([0.9]), steps([1])) == {"right": 1.0}


def test_calibration_by_hand():
    table = answers([("a", 0.9, True), ("a", 0.2, False), ("b", 0.7, False), ("b", 0.1, False)])
    low, high = compute_solution_calibration(table, bins=2)
    assert low == pytest.approx({"predicted": 0.15, "observed": 0.0, "labels": 2})
    assert high == pytest.approx({"predicted": 0.8, "observed": 0.5, "labels": 2})
    assert len(compute_solution_calibration(table, bins=10)) == 4


def of_steps():
    bad = [[0.1, 0.7], [0.2]]
    return pd.DataFrame(
        {
            "prompt_id": ["a", "a"],
            "reward": [0.3, 0.8],
            "right": [False, True],
            "labels": [[1, 1], [1]],
            "truth": [[1, -1], [0]],
            "bad": bad,
            "neutral": [[0.1, 0.1], [0.5]],
            "good": [[0.8, 0.2], [0.3]],
        }
    )


def test_steps_are_held_against_the_truth_where_it_is_known():
    found = compute_solution_measures(of_steps())
    assert found["by_class"] == {"bad": 1.0, "neutral": 1.0, "good": 1.0}
    assert found["brier"] == pytest.approx((0.1**2 + (1 - 0.7) ** 2 + 0.2**2) / 3)
    assert found["first_error"] == {"wrong": 1.0, "right": 1.0, "f1": 1.0}
    assert found["auc"] == 1.0
    by_labels = compute_solution_measures(of_steps().drop(columns="truth"))
    assert by_labels["by_class"] == {"good": pytest.approx(1 / 3)}
    assert by_labels["first_error"] == {"right": 0.5}
    assert set(found) <= {name.split("/")[0] for name in solution_measures.BEFORE | solution_measures.METRICS}


def test_what_nothing_can_be_said_of_is_left_out():
    found = compute_solution_measures(answers([("a", 0.9, True), ("a", 0.2, True)]))
    assert set(found) == {"right", "brier", "best_of"}
