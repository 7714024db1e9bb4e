"""Importance weights and the old log-probabilities in GRPO, REINFORCE and PPO, and GRPO's estimators of the KL, by what
a step does.
"""

import pytest
import torch

from tasks.algorithms.language.completions import compute_token_logps, make_completions
from tasks.algorithms.language.critic import Critic
from tasks.algorithms.language.experience import Experience
from tests.tasks.algorithms.language import test_grpo, test_ppo, test_reinforce
from tests.tasks.algorithms.language.test_grpo import BATCH
from tests.tasks.bandits import Table, graded, probabilities, rewards
from tests.tasks.optimizers import make_optimizer
from tests.tasks.tiny import llama

WEIGHT = "sampling/importance_sampling_ratio/mean"


def test_where_the_sampler_is_not_the_trainer_the_first_ratio_is_one():
    """The clip sees the updates alone, and the weights what the sampler did; the samples here are far from the
    policy's.
    """
    policy = llama(1)
    what = test_grpo.experience(policy, seed=3)
    weights = (compute_token_logps(policy, BATCH).detach() - what.logps).exp().clamp(max=1.5)
    taken = BATCH.mask & torch.tensor([1, 1, 0, 0, 1, 1]).bool().unsqueeze(1)  # the second group has no spread
    [row] = test_grpo.trained(policy, what, old_from_sampler=False, importance_cap=1.5)
    assert row["clip_ratio"] == 0
    assert row[WEIGHT] == pytest.approx(weights[taken].mean().item(), rel=1e-4)
    signs = torch.tensor([1.0, -1.0, 0.0, 0.0, -1.0, 1.0]).unsqueeze(1) / 2**0.5
    expected = -(weights * signs * BATCH.mask).sum() / BATCH.mask.sum()
    assert row["loss"] == pytest.approx(expected.item(), rel=2e-3)  # a group's deviation has 1e-4 added
    [uncorrected] = test_grpo.trained(llama(1), what, old_from_sampler=False)
    assert WEIGHT not in uncorrected
    assert abs(uncorrected["loss"] - row["loss"]) > 1e-3
    [by_ratio] = test_grpo.trained(llama(1), what)
    assert by_ratio["clip_ratio"] > 0.1, "with the sampler's log-probabilities as the old ones the clip acts at once"


def test_the_trainer_s_own_log_probabilities_stay_the_old_ones():
    """Over two updates: by a pass before the first, which for a sampler that is the trainer changes nothing."""
    found = []
    for own in (True, False):
        policy = llama(1)
        rows = test_grpo.trained(
            policy, test_grpo.experience(policy), learning_rate=0.01, updates=3, old_from_sampler=own
        )
        found.append((rows[0]["loss"], rows[0]["clip_ratio"], [p.detach() for p in policy.parameters()]))
    assert found[0][:2] == pytest.approx(found[1][:2], rel=1e-4)
    assert found[0][1] > 0
    for one, other in zip(found[0][2], found[1][2], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_with_k2_in_the_loss_it_ends_at_the_optimum_of_the_reverse_kl_and_with_k1_far_from_it():
    """ref exp(r / beta) / Z with k2; k1 has no pull at all, so that the policy ends at the best token."""
    found = {}
    for kl in ("k1", "k2"):
        policy, reference, samples, beta = Table(1, spread=1.0), Table(1, spread=1.0), 128, 0.2
        test_grpo.learn(
            policy, graded, steps=150, learning_rate=0.1, samples=samples, reference=reference, beta=beta,
            advantage="centered", kl=kl,
        )  # fmt: skip
        with torch.no_grad():
            found[kl] = probabilities(policy)
    with torch.no_grad():
        earned = rewards(graded) * (samples - 1) / samples
        reverse = (probabilities(reference).log() + earned / beta).softmax(1)
    assert (found["k2"] - reverse).abs().max() < 0.03
    assert (found["k1"] - reverse).abs().max() > 0.1


def test_importance_weights_scale_each_token_s_part_of_the_gradient():
    """Samples of another distribution than the policy's, with a cap that acts; the loss is a sum over single tokens."""
    policy = llama(1)
    batch = make_completions([[3, 4], [5]], [0, 1], [[7, 2], [8, 9, 2]], pad=2)
    with torch.no_grad():
        logps = compute_token_logps(policy, batch)
    sampled = (logps - torch.tensor([[0.1, -0.5, 0.0], [0.3, 2.0, -1.0]])) * batch.mask
    what = Experience(batch, sampled, torch.tensor([1.0, -0.5]), torch.ones(2, dtype=torch.bool))
    [row] = test_reinforce.fit(policy, lambda _: what, importance_cap=1.2)
    weights = torch.tensor([[0.1, -0.5, 0.0], [0.3, 2.0, -1.0]]).exp().clamp(max=1.2)
    paid = torch.tensor([[1.0], [-0.5]])
    assert row["loss"] == pytest.approx(-(weights * paid * logps * batch.mask).sum().item() / 2, rel=1e-4)
    assert row["sampling/importance_sampling_ratio/mean"] == pytest.approx(weights[batch.mask].mean().item(), rel=1e-4)
    [plain] = test_reinforce.fit(policy, lambda _: what)
    assert plain["loss"] == pytest.approx(-(paid * logps * batch.mask).sum().item() / 2, rel=1e-4)
    assert "sampling/importance_sampling_ratio/mean" not in plain


def test_where_the_sampler_is_not_the_trainer_ratio_and_kl_are_the_trainer_s_and_weights_correct():
    policy, reference = llama(1), llama(2)
    what, name = test_ppo.sampled(policy, (1.0, -0.5, 2.0, 0.0), seed=5), "sampling/importance_sampling_ratio/mean"
    look = {"reference": reference, "minibatches": 1, "epochs": 1}
    with torch.no_grad():
        logps, known = (compute_token_logps(model, what.completions) for model in (policy, reference))
        weights = (logps - what.logps).exp().clamp(max=1.1)
    mask, seen = what.completions.mask, []
    optimizers = [make_optimizer(model, 1e-9, 9, clip=1.0) for model in (llama(1), Critic(llama(3)))]
    corrected = {"old_from_sampler": False, "importance_cap": 1.1}
    row = next(
        test_ppo.fit(
            policy, Critic(llama(3)), lambda _: what, optimizers=optimizers, look=lambda *of: seen.append(of[2]),
            **look, **corrected,
        )
    )  # fmt: skip
    assert row["policy/approxkl"] == pytest.approx(0, abs=1e-9)
    assert row["policy/clipfrac"] == 0
    assert row["objective/kl"] == pytest.approx(((logps - known) * mask).sum(1).mean().item(), rel=1e-4)
    assert row[name] == pytest.approx(weights[mask].mean().item(), rel=1e-4)
    assert row["loss/policy"] == pytest.approx(-(weights * seen[0])[mask].mean().item(), rel=1e-4)
    assert row["sampling/logp_difference"] == pytest.approx((logps - what.logps)[mask].abs().mean().item(), rel=1e-4)
    plain = next(test_ppo.fit(policy, Critic(llama(3)), lambda _: what, optimizers=optimizers, **look))
    assert plain["policy/approxkl"] > 0.01, "the sampler's log-probabilities are the old ones"
    assert name not in plain
