import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.algorithms.language.advantages import (
    compute_reward_increments,
    compute_reward_spread_mask,
    gae,
    group_advantages,
    masked_mean,
    put_scores_at_last_token,
    reward_to_go,
    step_advantages,
    whiten,
)

MASK = torch.tensor([[True, True, True], [True, True, False]])
REWARDS = torch.tensor([[1.0, 0.0, 2.0], [0.5, 4.0, 99.0]])  # 99 is padding


def test_the_score_goes_to_the_last_real_token():
    """Not into the last column, nor one slot past the end (trl#3750)."""
    found = put_scores_at_last_token(torch.tensor([5.0, -1.0]), MASK)
    assert found.tolist() == [[0, 0, 5], [0, -1, 0]]
    assert put_scores_at_last_token(torch.tensor([5.0, -1.0], dtype=torch.float64), MASK).dtype == torch.float64


def test_reward_to_go_by_hand():
    found = reward_to_go(REWARDS, MASK, gamma=0.5)
    assert found.tolist() == [[1 + 0.5 * (0 + 0.5 * 2), 0 + 0.5 * 2, 2], [0.5 + 0.5 * 4, 4, 0]]


def test_gae_by_hand():
    """gamma 0.5, lambda 0.5: delta_t + 0.25 A_{t+1}, and after the last token the value is 0."""
    values = torch.tensor([[1.0, 2.0, 3.0], [1.0, -1.0, 7.0]])
    advantages, returns = gae(REWARDS, values, MASK, gamma=0.5, lam=0.5)
    third = 2 - 3.0
    second = 0 + 0.5 * 3 - 2 + 0.25 * third
    first = 1 + 0.5 * 2 - 1 + 0.25 * second
    last = 4 - -1.0
    before = 0.5 + 0.5 * -1 - 1 + 0.25 * last
    torch.testing.assert_close(advantages, torch.tensor([[first, second, third], [before, last, 0]]))
    torch.testing.assert_close(returns, torch.tensor([[first + 1, second + 2, third + 3], [before + 1, last - 1, 0]]))
    beyond = last_value_counted(values)
    assert abs(beyond - last) > 1, "a value read beyond the end would say something else"


def last_value_counted(values):
    return (4 + 0.5 * values[1, 2] - values[1, 1]).item()


@st.composite
def trajectories(draw):
    rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    lengths = torch.tensor([draw(st.integers(1, columns)) for _ in range(rows)])
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    rewards, values = torch.randn(2, rows, columns, generator=generator, dtype=torch.float64)
    return rewards, values, torch.arange(columns) < lengths[:, None]


@given(trajectories(), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=60)
def test_gae_is_its_definition(trajectory, gamma, lam):
    """A_t = sum over l of (gamma lambda)^l delta_{t+l} (arXiv:1506.02438, eq. 16), summed directly."""
    rewards, values, mask = trajectory
    advantages, returns = gae(rewards, values, mask, gamma, lam)
    for row, length in enumerate(mask.sum(1).tolist()):
        v = [*values[row, :length].tolist(), 0.0]
        deltas = [rewards[row, t].item() + gamma * v[t + 1] - v[t] for t in range(length)]
        slow = [sum((gamma * lam) ** (k - t) * deltas[k] for k in range(t, length)) for t in range(length)]
        assert advantages[row, :length].tolist() == pytest.approx(slow, abs=1e-9)
        assert returns[row, :length].tolist() == pytest.approx([a + b for a, b in zip(slow, v, strict=False)], abs=1e-9)
        assert not advantages[row, length:].any()
        assert not returns[row, length:].any()


WORTH = torch.tensor([[9.0, 2.0, 9.0, 9.0, 5.0, 4.0], [9.0, 1.0, 3.0, 9.0, 9.0, 9.0]])
KNOWN = torch.tensor([[0, 1, 0, 0, 1, 1], [0, 1, 1, 0, 0, 0]], dtype=torch.bool)
ON_THE_WAY = torch.tensor([[0.0, 2.0, 0.0, 0.0, 3.0, -1.0], [0.0, 1.0, 2.0, 0.0, 0.0, 0.0]])
LENGTHS = torch.tensor([[True] * 6, [True] * 3 + [False] * 3])


def test_what_is_paid_is_what_the_worth_rose_by():
    """2 at the first line's end, 5 at the second's and 4 at the last token; entries where the worth is unknown are not
    read.
    """
    assert torch.equal(compute_reward_increments(WORTH, KNOWN), ON_THE_WAY)
    assert compute_reward_increments(WORTH, KNOWN).sum(1).tolist() == [4, 3]


def test_reward_to_go_by_hand_with_rewards_on_the_way():
    """Rewards 2, 3 and -1: the first token gets all of them, a token after the first line 3 - 1, the last token -1."""
    found = reward_to_go(ON_THE_WAY, LENGTHS, 1.0)
    assert found.tolist() == [[4, 4, 2, 2, 2, -1], [3, 3, 2, 0, 0, 0]]
    wrong = [
        ON_THE_WAY.sum(1, keepdim=True).expand_as(found) * LENGTHS,  # the total, with earlier rewards
        ON_THE_WAY.cumsum(1) * LENGTHS,  # rewards up to here
        found - ON_THE_WAY,  # without the token's own reward
        reward_to_go(put_scores_at_last_token(ON_THE_WAY.sum(1), LENGTHS), LENGTHS, 1.0),  # all rewards at the end
        reward_to_go(WORTH * KNOWN, LENGTHS, 1.0),  # the worth itself in place of its rise
    ]
    assert all((mistake - found).abs().max() >= 1 for mistake in wrong)
    half = reward_to_go(ON_THE_WAY, LENGTHS, 0.5)
    assert half[1].tolist() == [1.0, 2.0, 2.0, 0.0, 0.0, 0.0]


@given(trajectories(), st.integers(0, 2**31))
@settings(max_examples=30)
def test_what_is_paid_on_the_way_adds_up(trajectory, seed):
    worth, _, mask = trajectory
    known = torch.rand(mask.shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    last = torch.arange(mask.shape[1]) == mask.sum(1, keepdim=True) - 1
    paid = compute_reward_increments(worth, known & mask | last)
    torch.testing.assert_close(paid.sum(1), worth[last])
    assert not paid[~(known & mask | last)].any()
    torch.testing.assert_close(reward_to_go(paid, mask, 1.0)[:, 0], worth[last])


@given(trajectories(), st.floats(0, 1))
@settings(max_examples=30)
def test_with_lambda_one_returns_are_rewards_to_go(trajectory, gamma):
    rewards, values, mask = trajectory
    torch.testing.assert_close(gae(rewards, values, mask, gamma, 1.0)[1], reward_to_go(rewards, mask, gamma))


OWNER = torch.tensor([0, 0, 1, 1, 1, 2, 2])
EARNED = torch.tensor([1.0, 0.0, 3.0, 1.0, 2.0, 0.7, 0.7])


def test_group_advantages_by_hand():
    """Unbiased standard deviations: 0.7071 of (1, 0), 1 of (3, 1, 2). A group without spread gets exactly 0."""
    first, second = 0.5 / (0.5**0.5 + 1e-4), 1 / (1 + 1e-4)
    found = group_advantages(EARNED, OWNER, "standardized")
    assert found.tolist() == pytest.approx([first, -first, second, -second, 0, 0, 0])
    assert found[5:].tolist() == [0, 0], "and not what rounding leaves over 1e-4"
    assert group_advantages(EARNED, OWNER, "centered").tolist() == pytest.approx([0.5, -0.5, 1, -1, 0, 0, 0])


@pytest.mark.parametrize(
    "wrong",
    [
        (EARNED - EARNED.mean()) / EARNED.std(),  # over the batch
        torch.cat(
            [(EARNED[g == OWNER] - EARNED[g == OWNER].mean()) / EARNED[g == OWNER].std(correction=0) for g in (0, 1)]
        ),
    ],
)
def test_known_mistakes_give_other_advantages(wrong):
    ours = group_advantages(EARNED, OWNER, "standardized")
    assert (wrong[:5] - ours[:5]).abs().max() > 0.1


@pytest.mark.parametrize("kind", ["standardized", "centered"])
def test_order_and_other_groups_do_not_matter(kind):
    order = torch.tensor([6, 2, 0, 4, 1, 3, 5])
    shuffled = group_advantages(EARNED[order], OWNER[order], kind)
    torch.testing.assert_close(shuffled, group_advantages(EARNED, OWNER, kind)[order])
    alone = group_advantages(EARNED[2:5], torch.zeros(3, dtype=torch.long), kind)
    torch.testing.assert_close(alone, group_advantages(EARNED, OWNER, kind)[2:5])


def test_spread_by_hand():
    assert compute_reward_spread_mask(EARNED, OWNER).tolist() == [True, True, False]
    tenths = torch.full((8,), 0.1)
    assert not compute_reward_spread_mask(tenths, torch.zeros(8, dtype=torch.long)).any(), (
        "their mean is not 0.1 in floating point"
    )
    assert not group_advantages(tenths, torch.zeros(8, dtype=torch.long), "standardized").any()


def test_whitening_by_hand():
    """Of 1, 3, 5 and 7 the mean is 4 and the variance 5; padding does not count and stays 0."""
    values = torch.tensor([[1.0, 3.0, 5.0], [7.0, 1e6, 1e6]])
    mask = torch.tensor([[True, True, True], [True, False, False]])
    expected = torch.tensor([[-3.0, -1.0, 1.0], [3.0, 0.0, 0.0]]) / 5**0.5
    torch.testing.assert_close(whiten(values, mask), expected)
    assert masked_mean(values, mask).item() == 4
    rows = torch.stack([whiten(values[i : i + 1], mask[i : i + 1])[0] for i in range(2)])
    assert (rows - expected).abs().max() > 0.5, "whitening each part by itself is something else"


# Two prompts. Of the first a response with steps of 0.9 and 0.3, and one with a single step of 0.6; of the second one
# of 0.5 twice.
NONE = float("nan")
AT_ENDS = torch.tensor([[NONE, 0.9, NONE, 0.3], [NONE, NONE, 0.6, NONE], [0.5, 0.5, NONE, NONE]])
STEPS_MASK = torch.tensor([[True] * 4, [True, True, True, False], [True, True, False, False]])
WHOSE = torch.tensor([0, 0, 1])


def test_step_advantages_by_hand():
    """The mean of 0.9, 0.3 and 0.6 is 0.6 and the unbiased deviation 0.3; the first step's tokens get the second step's
    share too.
    """
    found = step_advantages(AT_ENDS, STEPS_MASK, WHOSE, "centered")
    expected = torch.tensor([[0.0, 0.0, -0.3, -0.3], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(found, expected)
    scaled = step_advantages(AT_ENDS, STEPS_MASK, WHOSE, "standardized")
    torch.testing.assert_close(scaled, expected / (0.3 + 1e-4))


def test_known_mistakes_give_other_step_advantages():
    unequal = AT_ENDS.clone()
    unequal[1, 2] = 0.9  # the mean is now 0.7
    found = step_advantages(unequal, STEPS_MASK, WHOSE, "centered")
    torch.testing.assert_close(found[0], torch.tensor([-0.2, -0.2, -0.4, -0.4]))
    by_step = torch.tensor([0.2, 0.2, -0.4, -0.4])  # a step's own reward alone
    so_far = torch.tensor([0.2, 0.2, -0.2, -0.2])  # the sum up to here
    of_means = torch.tensor([-0.3, -0.3, -0.45, -0.45])  # against the mean of the responses' means, 0.75
    whole = torch.full((4,), -0.2)  # all tokens get all
    for mistake in (by_step, so_far, of_means, whole):
        assert (found[0] - mistake).abs().max() > 0.09


@pytest.mark.parametrize("kind", ["standardized", "centered"])
def test_with_one_step_each_step_advantages_are_those_of_responses(kind):
    mask = torch.tensor([[True, True, True], [True, False, False], [True, True, False], [True, True, True]])
    owner, earned = torch.tensor([0, 0, 1, 1]), torch.tensor([1.0, 0.0, 0.3, 0.4])
    last = torch.arange(3) == mask.sum(1, keepdim=True) - 1
    at_ends = torch.full(mask.shape, torch.nan).masked_scatter(last, earned)
    found = step_advantages(at_ends, mask, owner, kind)
    torch.testing.assert_close(found, group_advantages(earned, owner, kind).unsqueeze(1) * mask)


@given(trajectories(), st.integers(0, 2**31))
@settings(max_examples=30)
def test_step_advantages_sum_to_nothing_over_a_group(trajectory, seed):
    """Centred rewards of a group's steps add up to 0, and so do the first tokens' advantages, each of which is its
    response's sum.
    """
    worth, _, mask = trajectory
    some = torch.rand(mask.shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    last = torch.arange(mask.shape[1]) == mask.sum(1, keepdim=True) - 1
    at_ends = worth.masked_fill(~(some & mask | last), torch.nan)
    found = step_advantages(at_ends, mask, torch.zeros(len(mask), dtype=torch.long), "centered")
    assert found[:, 0].sum().abs() < 1e-6 * worth.abs().max().clamp(min=1) * mask.sum()
    assert not found[~mask].any()
