import numpy as np
import pytest

from tasks.language.rewards.annotator import (
    compute_ranks_of_groups,
    format_ranking_text,
    get_strength_label,
    group_ties,
    sample_noisy_utilities,
)

DRAWS = 20_000


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_pairs_follow_bradley_terry(temperature):
    rng = np.random.default_rng(1)
    drawn = np.stack([sample_noisy_utilities([3, 5, 4], temperature, rng) for _ in range(DRAWS)])
    for a, b, gap in [(1, 0, 2), (1, 2, 1), (2, 0, 1)]:
        observed = (drawn[:, a] > drawn[:, b]).mean()
        assert observed == pytest.approx(1 / (1 + np.exp(-gap / temperature)), abs=4 * 0.5 / DRAWS**0.5)


def test_the_winner_follows_plackett_luce():
    rng = np.random.default_rng(2)
    wins = np.bincount([int(sample_noisy_utilities([0, 1, 2], 1.0, rng).argmax()) for _ in range(DRAWS)]) / DRAWS
    expected = np.exp([0, 1, 2]) / np.exp([0, 1, 2]).sum()
    np.testing.assert_allclose(wins, expected, atol=4 * 0.5 / DRAWS**0.5)


def test_temperature_zero_is_the_scores_own_order():
    utilities = sample_noisy_utilities([7, 10, 7, 2], 0.0, np.random.default_rng(3))
    assert format_ranking_text(group_ties(utilities, 0.0)) == "B > A = C > D"


def test_the_lectures_ranking():
    groups = group_ties(np.array([1.0, 9.0, 5.0, 5.0]), 0.0)
    assert (format_ranking_text(groups), compute_ranks_of_groups(groups)) == ("B > C = D > A", [3, 1, 2, 2])


def test_ties_reach_the_margin_and_do_not_chain():
    groups = group_ties(np.array([3.0, 2.5, 2.0, 1.5]), 0.5)
    assert groups == [[0, 1], [2, 3]]
    assert group_ties(np.array([3.0, 2.5, 2.0, 1.5]), 0.49) == [[0], [1], [2], [3]]


def test_a_group_lists_its_members_in_the_order_sampled():
    assert format_ranking_text(group_ties(np.array([2.0, 3.0, 2.9]), 2.0)) == "A = B = C"


@pytest.mark.parametrize(
    ("difference", "expected"),
    [
        (0.9, "a negligibly better"),
        (1.0, "a slightly better"),
        (1.9, "a slightly better"),
        (2.0, "a better"),
        (3.9, "a better"),
        (4.0, "a significantly better"),
        (-0.1, "b negligibly better"),
        (-1.9, "b slightly better"),
        (-2.0, "b better"),
        (-9.0, "b significantly better"),
    ],
)
def test_strength(difference, expected):
    assert get_strength_label(difference, (1.0, 2.0, 4.0)) == expected
