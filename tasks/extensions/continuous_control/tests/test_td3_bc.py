from dataclasses import replace
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.transition_tensors import Spaces, TransitionBatch
from tasks.extensions.continuous_control.algorithms import td3, td3_bc
from tests.tasks.algorithms.offline import point

SETTINGS = td3.Td3Settings(gamma=point.GAMMA, noise=0.2, noise_clip=0.5, target_rate=0.05, policy_every=2)


def by_action(*factors):
    """Critics whose values are multiples of the first component of the action."""
    return lambda seen, actions: torch.stack([factor * actions[..., 0] for factor in factors])


def batch(actions, terminated=(False, True)):
    size = len(actions)
    return TransitionBatch(
        torch.zeros(size, 1), torch.tensor(actions), torch.ones(size), torch.zeros(size, 1), torch.tensor(terminated)
    )


def test_noise_is_cut_off_and_actions_stay_in_the_box():
    generator = torch.Generator().manual_seed(0)
    actions = td3.sample_smoothed_actions(
        lambda seen: torch.full((1000, 1), 0.7), torch.zeros(1000, 1), 0.2, 0.25, generator
    )
    assert actions.max() == 0.95
    assert actions.min() == pytest.approx(0.45)
    assert 0.14 < actions.std() < 0.2, "cut off at 1.25 deviations"
    assert td3.sample_smoothed_actions(lambda seen: torch.ones(9, 1), torch.zeros(9, 1), 0.2, 0.5, generator).max() <= 1
    still = td3.sample_smoothed_actions(lambda seen: torch.full((2, 1), 0.7), torch.zeros(2, 1), 0.0, 0.5, generator)
    assert still.flatten().tolist() == pytest.approx([0.7, 0.7])


def test_targets_by_hand_take_the_lower_critic_at_the_target_policys_action():
    agent = SimpleNamespace(target_policy=lambda seen: torch.full((2, 1), 0.5), targets=by_action(4.0, 6.0))
    settings = td3.Td3Settings(0.5, 0.0, 0.5, 0.05, 2)
    targets = td3.compute_q_targets(agent, batch([[0.0], [0.0]]), settings, torch.Generator())
    assert targets.tolist() == [1 + 0.5 * 2, 1]


def test_the_policys_loss_by_hand_scales_the_first_critic():
    chosen = torch.tensor([[0.5, 0.0], [-0.1, 0.0]], requires_grad=True)
    agent = SimpleNamespace(policy=lambda seen: chosen, critics=by_action(10.0, -99.0))
    loss, distance = td3_bc.policy_loss(agent, batch([[0.5, 0.2], [0.1, 0.0]]), alpha=2.5)
    assert distance.item() == pytest.approx((0.04 + 0.04) / 4)
    assert loss.item() == pytest.approx(0.02 - 2.5 / 3 * 2)  # Q: 5 and -1; their mean size is 3
    loss.backward()
    scale = 2.5 / 3 * 10 / 2  # a constant: the size has no gradient
    assert chosen.grad[:, 0].tolist() == pytest.approx([0 / 2 - scale, 2 * -0.2 / 4 - scale])


def learning(alpha=2.5, **changes):
    torch.manual_seed(0)
    data = point.recorded(False)
    agent = td3.TD3Agent(point.spaces(False), [32], 2, data.observations)
    optimizers = {name: Adam(getattr(agent, name).parameters(), point.RATE) for name in ("critics", "policy")}
    settings = replace(SETTINGS, **changes)
    generator = torch.Generator().manual_seed(0)
    loss = partial(td3_bc.policy_loss, alpha=alpha)
    return agent, td3.fit(agent, optimizers, data.batches(64, generator), settings, loss, generator), data


def test_the_policy_and_the_targets_learn_in_every_second_step_only():
    agent, steps, _ = learning(target_rate=1.0)
    policies, followed = [], []
    for row, _ in zip(steps, range(4), strict=False):
        policies.append(agent.policy.layers[0].weight.detach().clone())
        followed.append(point.same(agent.targets, agent.critics) and point.same(agent.target_policy, agent.policy))
        assert row["policy_loss"] == agent.last[0]
    assert [torch.equal(*two) for two in pairwise(policies)] == [True, False, True]
    assert followed == [True, False, True, False]


def test_it_does_better_than_the_data_and_than_cloning_it():
    agent, steps, data = learning()
    point.drain(steps, 120)
    assert point.score(agent.policy) > max(data.returns.mean().item(), point.score(point.cloned(False))) + 1


def test_without_values_it_clones():
    near, far = learning(alpha=0.0), learning(alpha=10.0)
    assert point.drain(near[1], 150)["distance"] < point.drain(far[1], 60)["distance"]
    assert point.score(near[0].policy) == pytest.approx(point.score(point.cloned(False)), abs=0.3)


def test_layer_normalisation_follows_each_hidden_layer():
    agent = td3.TD3Agent(Spaces(2, 1, False), [8, 4], 2, torch.zeros(3, 2), layer_norm=True)
    kinds = [type(layer).__name__ for layer in agent.critics.members[0]]
    assert kinds == ["Rectified", "LayerNorm", "Rectified", "LayerNorm", "Linear"]
    assert [type(layer).__name__ for layer in agent.policy.layers] == ["Rectified", "Rectified", "Linear"]
