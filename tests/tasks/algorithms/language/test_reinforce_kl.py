"""REINFORCE with the KL to a reference in the reward."""

import pytest
import torch

from tasks.algorithms.language.completions import compute_token_logps
from tests.tasks.algorithms.language.test_reinforce import BATCH, enumerated, fit, sampled, two_tokens
from tests.tasks.bandits import PROMPTS, Table, expected_reward, probabilities
from tests.tasks.tiny import llama

COEFFICIENT = 0.3


def test_a_step_by_hand():
    """Each token is paid -0.3 log pi / ref, and earns what follows it; the sampling is at temperature 0.7."""
    policy, reference = llama(1), llama(5)
    what = sampled(policy, temperature=0.7)
    changes = {"kl_coefficient": COEFFICIENT, "temperature": 0.7, "gamma": 0.5, "micro_batch": 3}
    row = next(fit(policy, lambda _: what, reference=reference, **changes))
    own, other = (compute_token_logps(model, BATCH, 0.7).detach() for model in (policy, reference))
    loss, kl = 0.0, 0.0
    for n, length in enumerate([3, 1, 2, 2]):
        to_go = 0.0
        for t in reversed(range(length)):
            apart = (own[n, t] - other[n, t]).item()
            paid = (what.rewards[n].item() if t == length - 1 else 0.0) - COEFFICIENT * apart
            to_go = paid + 0.5 * to_go
            loss -= to_go * own[n, t].item() / 4
            kl += apart / 4
    assert row["loss"] == pytest.approx(loss, rel=1e-4)
    assert row["objective/kl"] == pytest.approx(kl, rel=1e-4)
    assert row["reward"] == pytest.approx(what.rewards.mean().item()), "the reward is shown without the KL"


@pytest.mark.parametrize("length", [1, 2])
def test_the_expected_gradient_is_that_of_reward_minus_kl(length):
    """By all responses of so many tokens, with autograd through the exact divergence."""
    policy, reference = Table(1, spread=1.0), Table(2, spread=1.0)
    given = {"reference": lambda: reference, "kl_coefficient": lambda: COEFFICIENT}
    found = enumerated(policy, length, two_tokens, **given)
    expected_reward(policy, two_tokens, length).backward()
    without = policy.head.weight.grad.clone()
    own, other = probabilities(policy, length), probabilities(reference, length).detach()
    divergence = (own * (own / other).log()).sum() / len(PROMPTS)
    (-COEFFICIENT * divergence).backward()
    torch.testing.assert_close(-found, policy.head.weight.grad, rtol=1e-4, atol=1e-5)
    assert (-found - without).abs().max() > 0.01


def test_no_reference_is_no_penalty():
    policy = llama(1)
    [plain] = fit(policy, lambda _: sampled(policy))
    [same] = fit(policy, lambda _: sampled(policy), reference=llama(5), kl_coefficient=0.0)
    assert "objective/kl" not in plain
    assert same["loss"] == plain["loss"]
