from math import log
from types import SimpleNamespace

import pytest
import torch

from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.networks.stochastic import Categorical, SquashedGaussian
from tasks.algorithms.offline.transition_tensors import Spaces, TransitionBatch
from tasks.extensions.continuous_control.algorithms import brac
from tests.tasks.algorithms.offline import point
from tests.tasks.algorithms.offline.networks.test_stochastic import constant

SETTINGS = brac.BracSettings(gamma=0.5, alpha=0.1, target_rate=0.05, warmup=100)
Q = torch.tensor([[[1.0, 8.0]], [[5.0, 4.0]]])  # two critics, one state, two actions
TWO = Spaces(1, 2, discrete=True)


def table(values):
    """Critics that give these values in every state: (E, 1, A)."""
    return SimpleNamespace(every=lambda seen: values.expand(-1, len(seen), -1))


def test_the_value_of_a_discrete_policy_is_an_exact_expectation_of_the_lower_critic():
    policy = constant(Categorical(TWO, []), log(3), 0.0)
    expected = 3 / 4 * 1 + 1 / 4 * 4  # not 1 of the lower expectation, min(2.75, 4.75)
    assert brac.compute_policy_value(policy, table(Q), torch.zeros(2, 1), None).tolist() == pytest.approx(
        [expected] * 2
    )


def test_the_value_of_a_continuous_policy_is_that_of_its_sample():
    policy = constant(SquashedGaussian(Spaces(1, 1, False), []), 0.3, 0.0)
    sampled, _ = policy.sample(torch.zeros(4, 1), 1, torch.Generator().manual_seed(0))

    def critics(seen, actions):
        return torch.stack([actions.squeeze(1), 2 * actions.squeeze(1)])

    value = brac.compute_policy_value(policy, critics, torch.zeros(4, 1), torch.Generator().manual_seed(0))
    torch.testing.assert_close(value, torch.minimum(sampled[0, :, 0], 2 * sampled[0, :, 0]))


def agent():
    """KL of its policy to its clone: 0.13081."""
    return SimpleNamespace(
        policy=constant(Categorical(TWO, []), log(3), 0.0),
        clone=constant(Categorical(TWO, []), 1.0, 1.0),
        targets=table(Q),
        critics=table(2 * Q),
        updates=torch.tensor(100),
    )


KL = 3 / 4 * log(3 / 2) + 1 / 4 * log(1 / 2)


def test_targets_by_hand_with_the_penalty_inside_the_bootstrap():
    batch = TransitionBatch(
        torch.zeros(2, 1),
        torch.tensor([0, 1]),
        torch.tensor([1.0, 1.0]),
        torch.zeros(2, 1),
        torch.tensor([False, True]),
    )
    targets = brac.compute_q_targets(agent(), batch, SETTINGS, None)
    assert targets.tolist() == pytest.approx([1 + 0.5 * (1.75 - 0.1 * KL), 1.0])
    assert not targets.requires_grad
    wrong = [1 + 0.5 * 1.75 - 0.1 * KL, 1 - 0.1 * KL]  # a penalised reward: counts where the episode has ended
    assert targets.tolist() != pytest.approx(wrong, abs=1e-3)


def test_the_policys_loss_by_hand():
    loss, divergence = brac.policy_loss(agent(), torch.zeros(3, 1), SETTINGS, None)
    assert loss.item() == pytest.approx(0.1 * KL - 2 * 1.75)
    assert divergence.item() == pytest.approx(KL)


def test_in_the_warm_up_the_policy_follows_the_behaviour_only():
    early = agent()
    early.updates = torch.tensor(99)
    loss, _ = brac.policy_loss(early, torch.zeros(3, 1), SETTINGS, None)
    assert loss.item() == pytest.approx(KL)


def learning(discrete):
    torch.manual_seed(0)
    data = point.recorded(discrete)
    learner = brac.BRACAgent(point.spaces(discrete), [32], 2, data.observations)
    optimizers = {
        name: Adam(getattr(learner, name).parameters(), point.RATE) for name in ("clone", "critics", "policy")
    }
    return learner, optimizers, data


def test_the_targets_follow_the_critics():
    learner, optimizers, data = learning(False)
    settings = brac.BracSettings(gamma=0.9, alpha=0.1, target_rate=1.0, warmup=0)
    before = learner.targets.members[0][0].weight.clone()
    next(brac.fit(learner, optimizers, data, settings, batch_size=8, generator=torch.Generator()))
    assert point.same(learner.targets, learner.critics)
    assert not torch.equal(before, learner.targets.members[0][0].weight)


@pytest.mark.parametrize("discrete", [True, False])
def test_the_clone_learns_what_the_data_do(discrete):
    learner, optimizers, data = learning(discrete)

    def likelihood():
        return learner.clone.log_likelihood(data.observations, data.actions).mean().item()

    before = likelihood()
    generator = torch.Generator().manual_seed(0)
    point.drain(brac.fit(learner, optimizers, data, SETTINGS, batch_size=64, generator=generator), 30)
    assert likelihood() > before + 0.1


def trained(discrete, alpha, steps=100):
    learner, optimizers, data = learning(discrete)
    settings = brac.BracSettings(gamma=point.GAMMA, alpha=alpha, target_rate=0.05, warmup=40)
    generator = torch.Generator().manual_seed(0)
    metrics = point.drain(brac.fit(learner, optimizers, data, settings, batch_size=64, generator=generator), steps)
    return learner.policy, metrics, data


@pytest.mark.parametrize("discrete", [True, False])
def test_it_does_better_than_the_data_and_than_cloning_it(discrete):
    policy, _, data = trained(discrete, alpha=0.1)
    assert point.score(policy) > max(data.returns.mean().item(), point.score(point.cloned(discrete))) + 1


def test_a_larger_penalty_keeps_it_nearer_to_the_behaviour():
    assert trained(True, alpha=3.0, steps=70)[1]["kl"] < 0.5 * trained(True, alpha=0.03, steps=70)[1]["kl"]
