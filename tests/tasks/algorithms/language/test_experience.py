from dataclasses import replace
from math import log

import pytest
import torch

from tasks.algorithms.common.errors import TrainingError
from tasks.algorithms.common.optimizer import check_finite
from tasks.algorithms.language.accumulation import cut_into_micro_batches
from tasks.algorithms.language.completions import make_completions
from tasks.algorithms.language.experience import (
    Experience,
    check_rewards_and_logps,
    summarise_samples,
)
from tests.tasks.bandits import Table, collector, expected_reward, graded, probabilities, with_end

BATCH = make_completions([[3, 4], [5]], [0, 0, 1, 1], [[7, 2], [8, 9, 10], [2], [6, 2]], pad=2)
LOGPS = torch.tensor([0.5, 0.25, 1.0]).log() * BATCH.mask
EXPERIENCE = Experience(
    BATCH, LOGPS, torch.tensor([1.0, 0.0, 0.5, 0.5]), torch.tensor([True, False, True, True]), {"reward/format": 0.25}
)


def test_the_summary_by_hand():
    """Over real tokens only: 8 of them, four of probability 1/2, three of 1/4 and one of 1."""
    assert summarise_samples(EXPERIENCE) == pytest.approx(
        {
            "reward": 0.5,
            "reward_std": (0.5 / 3) ** 0.5,
            "reward/none": 0.0,
            "entropy": (4 * log(2) + 3 * log(4)) / 8,
            "completions/mean_length": 2.0,
            "completions/clipped_ratio": 0.25,
            "reward/format": 0.25,
        }
    )


def test_a_single_response_has_no_spread():
    one = Experience(BATCH.rows(torch.tensor([0])), LOGPS[:1], torch.tensor([1.0]), torch.tensor([True]))
    assert summarise_samples(one)["reward_std"] == 0.0


def test_the_entropy_is_that_of_the_policy():
    """The mean of -log pi over 1,200 samples against the sum over the vocabulary."""
    policy = Table(0, spread=1.0)
    found = summarise_samples(collector(policy, graded, samples=400)(0))["entropy"]
    with torch.no_grad():
        exact = -(probabilities(policy) * probabilities(policy).log()).sum(1).mean().item()
    assert found == pytest.approx(exact, abs=0.05)


def test_means_are_of_the_rewards_that_are_there():
    """2 and 0 of four responses, and none of four; lengths and entropy are those of all."""
    partly, wholly = (
        summarise_samples(replace(EXPERIENCE, rewards=torch.tensor(earned)))
        for earned in ([2.0, float("nan"), 0.0, float("nan")], [float("nan")] * 4)
    )
    assert (partly["reward"], partly["reward_std"], partly["reward/none"]) == (1.0, pytest.approx(2**0.5), 0.5)
    assert (wholly["reward"], wholly["reward_std"], wholly["reward/none"]) == (0.0, 0.0, 1.0)
    same = ("entropy", "completions/mean_length", "completions/clipped_ratio")
    assert all(partly[name] == wholly[name] == summarise_samples(EXPERIENCE)[name] for name in same)


@pytest.mark.parametrize("bad", [float("inf"), -float("inf")])
def test_a_reward_must_be_finite_or_none(bad):
    check_rewards_and_logps(replace(EXPERIENCE, rewards=torch.tensor([1.0, 0.0, float("nan"), float("nan")])))
    rewards = torch.tensor([1.0, 0.0, bad, bad])
    with pytest.raises(TrainingError, match=rf"the reward of response 2 is {bad:g} \(2 of 4 are"):
        check_rewards_and_logps(Experience(BATCH, LOGPS, rewards, EXPERIENCE.ended))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_must_be_a_finite_number(bad):
    check_finite("loss", -3.0)
    with pytest.raises(TrainingError, match=f"the loss is {bad:g}: training has diverged$"):
        check_finite("loss", bad)


def test_a_policy_without_probabilities_has_diverged():
    logps = LOGPS.clone()
    logps[1, 1] = float("nan")
    with pytest.raises(TrainingError, match=r"the log-probability of a batch's samples is nan: training has div"):
        check_rewards_and_logps(Experience(BATCH, logps, EXPERIENCE.rewards, EXPERIENCE.ended))


def test_parts_are_of_like_length_and_hold_every_row_once():
    rows = torch.tensor([3, 1, 0, 2])
    assert [part.tolist() for part in cut_into_micro_batches(BATCH, rows, 2)] == [[2, 3], [0, 1]]
    assert [part.tolist() for part in cut_into_micro_batches(BATCH, rows, 3)] == [[2, 3, 0], [1]]
    assert [part.tolist() for part in cut_into_micro_batches(BATCH, torch.tensor([1, 2]), 9)] == [[2, 1]]
    assert list(cut_into_micro_batches(BATCH, rows[:0], 2)) == []


def test_with_long_prompts_a_prompts_responses_stay_together():
    """By length the parts would be (0, 2) and (1, 3), with both prompts in each: 44 tokens instead of 30."""
    responses = [[7], [8, 9, 10], [2], [6, 2, 1]]
    long, short = (make_completions([[3] * size, [5] * size], [0, 0, 1, 1], responses, pad=2) for size in (9, 1))
    rows = torch.arange(4)
    assert [part.tolist() for part in cut_into_micro_batches(long, rows, 2)] == [[0, 1], [2, 3]]
    assert [part.tolist() for part in cut_into_micro_batches(short, rows, 2)] == [[0, 2], [1, 3]]


def test_the_bandits_of_these_tests_know_all_responses():
    """Probabilities add up to one, and samples earn what is expected: 600 of a reward of 0 or 1, mean 0.14."""
    policy = Table(2, spread=1.5)
    with torch.no_grad():
        for length in (1, 2):
            torch.testing.assert_close(probabilities(policy, length).sum(1), torch.ones(3))
        expected = expected_reward(policy, with_end, 2).item()
    found = collector(policy, with_end, samples=1000, length=2)(0).rewards.mean().item()
    assert expected > 0.001
    assert found == pytest.approx(expected, abs=0.015)
