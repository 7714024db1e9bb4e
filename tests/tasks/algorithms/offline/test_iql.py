from itertools import islice
from math import exp
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tasks.algorithms.offline import iql
from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.transition_tensors import Transitions
from tests.tasks.algorithms.offline import point

SETTINGS = iql.IqlSettings(gamma=point.GAMMA, expectile=0.7, beta=3.0, max_weight=100.0, target_rate=0.05)


def test_the_expectile_loss_by_hand():
    differences = torch.tensor([2.0, -1.0])
    assert iql.expectile_loss(differences, 0.9).item() == pytest.approx((0.9 * 4 + 0.1 * 1) / 2)
    assert iql.expectile_loss(differences, 0.5).item() == pytest.approx(differences.square().mean().item() / 2)


@pytest.mark.parametrize(("expectile", "value"), [(0.5, 1 / 3), (0.9, 9 / 11), (0.99, 99 / 101)])
def test_the_value_is_the_expectile_of_what_actions_are_worth(expectile, value):
    """Of two worth 0 and one worth 1: tau (1 - v) = 2 (1 - tau) v."""
    worth, v = torch.tensor([0.0, 0.0, 1.0]), torch.zeros(1, requires_grad=True)
    for _ in range(200):
        (slope,) = torch.autograd.grad(iql.expectile_loss(worth - v, expectile), v)
        v = (v - 0.5 * slope).detach().requires_grad_()
    assert v.item() == pytest.approx(value, abs=1e-3)


def test_weights_by_hand():
    weights = iql.exponential_advantage_weights(torch.tensor([0.0, 1.0, -1.0, 9.0]), 0.5, 4.0)
    assert weights.tolist() == pytest.approx([1, exp(0.5), exp(-0.5), 4])


class Constant:
    """An agent whose networks say the same of all states; its optimizers note the losses."""

    def __init__(self):
        self.policy = SimpleNamespace(log_likelihood=lambda seen, actions: torch.tensor([-1.0, -2.0]))
        self.critics = lambda seen, actions: torch.tensor([[3.0, 0.0], [5.0, 2.0]])
        self.targets = nn.Linear(1, 1)
        self.losses = {}

    def worth(self, batch):
        return torch.tensor([3.0, 2.0])

    def values(self, observations):
        return observations[:, 0]  # the first observation is worth 1, the second 4, the next ones 10

    def optimizer(self, name):
        return SimpleNamespace(step=lambda loss: self.losses.update({name: float(loss)}))


def test_one_step_by_hand(monkeypatch):
    """Advantages 2 and -2; Bellman targets 1 + 0.5 x 10, and 2 where the episode has ended."""
    monkeypatch.setattr(iql, "polyak_update", lambda *_: None)
    data = Transitions(
        torch.tensor([[1.0], [4.0]]),
        torch.tensor([0, 1]),
        torch.tensor([1.0, 2.0]),
        torch.full((2, 1), 10.0),
        torch.tensor([False, True]),
        torch.tensor([2]),
    )
    agent = Constant()
    optimizers = {name: agent.optimizer(name) for name in ("value", "policy", "critics")}
    settings = iql.IqlSettings(gamma=0.5, expectile=0.7, beta=0.5, max_weight=2.0, target_rate=0.0)
    row = next(iql.fit(agent, optimizers, [data], settings))
    assert agent.losses["value"] == pytest.approx((0.7 * 4 + 0.3 * 4) / 2)
    assert agent.losses["policy"] == pytest.approx((2.0 * 1 + exp(-1) * 2) / 2)
    assert agent.losses["critics"] == pytest.approx(((3 - 6) ** 2 + (0 - 2) ** 2) / 2 + ((5 - 6) ** 2 + 0) / 2)
    assert (row["advantage"], row["clipped"]) == (0, 0.5)


def test_actions_are_worth_what_the_lowest_target_critic_says():
    agent = iql.IQLAgent(point.spaces(True), [4], 2, torch.zeros(3, 1))
    given = point.recorded(True)
    every = agent.targets(given.observations, given.actions)
    worth = agent.worth(given)
    assert torch.equal(worth, torch.minimum(every[0], every[1]))
    assert not worth.requires_grad


def learning(discrete):
    torch.manual_seed(0)
    data = point.recorded(discrete)
    agent = iql.IQLAgent(point.spaces(discrete), [32], 2, data.observations)
    return (
        agent,
        {name: Adam(getattr(agent, name).parameters(), point.RATE) for name in ("value", "critics", "policy")},
        data,
    )


def trained(discrete, steps=120, **changes):
    agent, optimizers, data = learning(discrete)
    settings = iql.IqlSettings(**{**vars(SETTINGS), **changes})
    generator = torch.Generator().manual_seed(0)
    metrics = point.drain(iql.fit(agent, optimizers, data.batches(64, generator), settings), steps)
    return agent, metrics, data


@pytest.mark.parametrize("discrete", [True, False])
def test_it_does_better_than_the_data_and_than_cloning_it(discrete):
    agent, _, data = trained(discrete, beta=10.0)
    assert point.score(agent.policy) > max(data.returns.mean().item(), point.score(point.cloned(discrete))) + 1


def test_without_a_temperature_it_clones():
    agent, metrics, _ = trained(True, steps=150, beta=0.0)
    assert metrics["weight"] == 1
    assert point.score(agent.policy) == pytest.approx(point.score(point.cloned(True)), abs=0.3)


def test_a_higher_expectile_values_states_higher():
    low, high = (trained(False, steps=60, expectile=expectile) for expectile in (0.5, 0.95))
    seen = low[2].observations
    assert high[0].value(seen).mean() > low[0].value(seen).mean() + 0.1
    assert high[1]["advantage"] < 0


def test_each_step_lets_the_value_learn_first_and_the_targets_follow():
    agent, optimizers, data = learning(True)
    order = []
    for name, optimizer in optimizers.items():
        step = optimizer.step
        optimizer.step = lambda loss, name=name, step=step: (order.append(name), step(loss))
    settings = iql.IqlSettings(**{**vars(SETTINGS), "target_rate": 1.0})
    next(iql.fit(agent, optimizers, data.batches(8, torch.Generator()), settings))
    assert order == ["value", "policy", "critics"]
    assert point.same(agent.targets, agent.critics)


def test_the_policy_alone_learns_from_its_loss():
    """The weights carry no gradient to the value or the critics."""
    agent, optimizers, data = learning(False)
    kept = {name: [p.detach().clone() for p in getattr(agent, name).parameters()] for name in optimizers}
    for name in ("value", "critics"):
        optimizers[name].step = lambda loss: None
    list(islice(iql.fit(agent, optimizers, data.batches(8, torch.Generator()), SETTINGS), 3))
    changed = {
        name: any(
            not torch.equal(before, now)
            for before, now in zip(kept[name], getattr(agent, name).parameters(), strict=True)
        )
        for name in kept
    }
    assert changed == {"value": False, "critics": False, "policy": True}
