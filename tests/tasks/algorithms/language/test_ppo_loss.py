from dataclasses import replace

import pytest
import torch

from tasks.algorithms.language.advantages import gae, whiten
from tasks.algorithms.language.completions import make_completions
from tasks.algorithms.language.experience import Experience
from tasks.algorithms.language.ppo import PpoSettings, clipped_value_loss, prepare_ppo_batch

OLD = torch.tensor([1.0, 1.0, 1.0, 1.0])
NOW = torch.tensor([1.1, 3.0, 3.0, -1.0])
RETURNS = torch.tensor([2.0, 0.0, 4.0, 1.0])
# Clipped to within 0.5 of 1 the values are 1.1, 1.5, 1.5 and 0.5. The larger error counts.
CLIPPED = [0.9**2 / 2, 3.0**2 / 2, 2.5**2 / 2, 2.0**2 / 2]


def test_value_loss_by_hand():
    assert clipped_value_loss(NOW, OLD, RETURNS, 0.5).tolist() == pytest.approx(CLIPPED)
    assert clipped_value_loss(NOW, OLD, RETURNS, 0.0).tolist() == pytest.approx([0.9**2 / 2, 9 / 2, 1 / 2, 4 / 2])
    wrong = [
        2 * clipped_value_loss(NOW, OLD, RETURNS, 0.5),  # not halved
        (1 + (NOW - OLD).clamp(-0.5, 0.5) - RETURNS).square() / 2,  # the held value alone
        torch.min(
            clipped_value_loss(NOW, OLD, RETURNS, 0.0), (OLD + (NOW - OLD).clamp(-0.5, 0.5) - RETURNS).square() / 2
        ),
        clipped_value_loss(NOW, RETURNS, OLD, 0.5),  # held near the return
    ]
    for mistake in wrong:
        assert (mistake - torch.tensor(CLIPPED)).abs().max() > 0.5


def test_a_value_past_the_clip_that_nears_its_return_has_no_gradient():
    values = NOW.clone().requires_grad_()
    clipped_value_loss(values, OLD, RETURNS, 0.5).sum().backward()
    assert values.grad.tolist() == pytest.approx([-0.9, 3.0, 0.0, -2.0])


# Responses of three and of two tokens; the second was cut off. Everything in the last column of the second is padding.
BATCH = make_completions([[4], [5]], [0, 1], [[0, 1, 3], [1, 2]], pad=3)
MASK = BATCH.mask
LOGPS = torch.tensor([[-1.0, -2.0, -0.5], [-3.0, -1.0, 0.0]])
KNOWN = torch.tensor([[-1.5, -1.0, -0.5], [-2.0, -2.0, -9.0]])
VALUES = torch.tensor([[0.5, 1.0, 0.0], [-1.0, 2.0, 50.0]])
SAMPLED = Experience(BATCH, LOGPS, torch.tensor([2.0, 3.0]), torch.tensor([True, False]))


def by_hand(whitened):
    """gamma 0.9, lambda 0.5, KL coefficient 0.1, penalty 4 on the second: its score is -1."""
    tokens = [[-0.05, 0.1, 2.0], [0.1, -0.1 - 1.0]]
    third = 2.0 - 0.0
    second = 0.1 + 0.9 * 0.0 - 1.0 + 0.45 * third
    first = tokens[0][0] + 0.9 * 1.0 - 0.5 + 0.45 * second
    last = tokens[1][1] - 2.0
    before = tokens[1][0] + 0.9 * 2.0 - -1.0 + 0.45 * last
    advantages = torch.tensor([[first, second, third], [before, last, 0.0]])
    returns = torch.tensor([[first + 0.5, second + 1.0, third], [before - 1.0, last + 2.0, 0.0]])
    if whitened:
        kept = advantages[MASK]
        advantages = (advantages - kept.mean()) / kept.std(correction=0) * MASK
    return advantages, returns


def prepared(sampled=SAMPLED, known=KNOWN, coefficient=0.1, values=VALUES, **changes):
    plain = {"gamma": 0.9, "lam": 0.5, "missing_end_penalty": 4.0, "whiten": True}
    unused = {
        "clip_ratio": 0.2,
        "clip_value": 0.2,
        "epochs": 1,
        "minibatches": 1,
        "temperature": 1.0,
        "old_from_sampler": True,
        "importance_cap": None,
        "micro_batch": 100,
        "seed": 0,
    }
    return prepare_ppo_batch(
        sampled, sampled.logps, known, values, PpoSettings(**{**plain, **unused, **changes}), coefficient
    )


@pytest.mark.parametrize("whitened", [True, False])
def test_a_batch_is_prepared_by_hand(whitened):
    found = prepared(whiten=whitened)
    advantages, returns = by_hand(whitened)
    torch.testing.assert_close(found.advantages, advantages)
    torch.testing.assert_close(found.returns, returns)
    assert torch.equal(found.old_values, VALUES)
    assert torch.equal(found.old_logps, LOGPS)


def last_column(scores):
    """Rewards with the score in the last column instead of on the last real token."""
    tokens = -0.1 * (LOGPS - KNOWN) * MASK
    tokens[:, -1] += scores
    return gae(tokens, VALUES, MASK, 0.9, 0.5)


@pytest.mark.parametrize(
    ("advantages", "returns"),
    [
        (prepared(missing_end_penalty=0.0).advantages, prepared(missing_end_penalty=0.0).returns),
        (prepared(replace(SAMPLED, ended=~SAMPLED.ended)).advantages, None),  # the penalty on the one that ended
        (prepared(replace(SAMPLED, ended=torch.tensor([False, False]))).advantages, None),  # on all
        (prepared(missing_end_penalty=-4.0).advantages, None),  # a bonus
        (prepared(coefficient=-0.1).advantages, prepared(coefficient=-0.1).returns),
        (prepared(coefficient=0.0).advantages, prepared(coefficient=0.0).returns),
        (whiten(last_column(torch.tensor([2.0, -1.0]))[0], MASK), last_column(torch.tensor([2.0, -1.0]))[1]),
        (None, by_hand(True)[0] + VALUES * MASK),  # returns of whitened advantages
        (by_hand(False)[0], None),
        (torch.stack([whiten(by_hand(False)[0][i : i + 1], MASK[i : i + 1])[0] for i in range(2)]), None),
    ],
)
def test_known_mistakes_prepare_another_batch(advantages, returns):
    for mistake, right in zip((advantages, returns), by_hand(True), strict=True):
        assert mistake is None or (mistake - right).abs().max() > 0.05


def test_the_reward_to_go_is_what_followed():
    """Summed by hand.

    Unlike the lambda-returns it contains no values of the critic, and whitening does not change it.
    """
    first = [-0.05 + 0.9 * (0.1 + 0.9 * 2.0), 0.1 + 0.9 * 2.0, 2.0]
    second = [0.1 + 0.9 * -1.1, -1.1, 0.0]
    for values, whitened in ((VALUES, False), (7 * VALUES, True)):
        found = prepared(values=values, whiten=whitened)
        torch.testing.assert_close(found.reward_to_go, torch.tensor([first, second]))
