from dataclasses import replace

import pytest
import torch

from tasks.algorithms.offline import behaviour
from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.behaviour import BehaviourSettings, Rollout, RunningMoments, compute_gae, fit, ppo_loss
from tasks.algorithms.offline.networks.actors import BOUND, Behaviour, Tanh
from tasks.algorithms.offline.transition_tensors import Spaces

GAMMA, LAM = 0.5, 0.5
SPACES = Spaces(2, 3, discrete=True)
SETTINGS = BehaviourSettings(
    updates=25, learning_rate=0.03, gamma=0.9, lam=0.9, clip=0.2, epochs=4, minibatches=2, entropy=0.0
)


def rollout(terminated, ended):
    steps = len(ended)
    nothing = torch.zeros(steps, 1, 2)
    flags = (torch.tensor(flag, dtype=torch.bool)[:, None] for flag in (terminated, ended))
    return Rollout(nothing, torch.zeros(steps, 1, dtype=torch.long), torch.zeros(steps, 1), nothing, *flags)


REWARDS, VALUES, AFTER = (torch.tensor(row)[:, None] for row in ([1.0, 2.0, 4.0], [1.0, 1.0, 1.0], [10.0, 20.0, 40.0]))


@pytest.mark.parametrize(
    ("terminated", "ended", "expected"),
    [
        # no end: deltas 1+5-1=5, 2+10-1=11, 4+20-1=23; backwards 23, 11+23/4, 5+16.75/4
        ([0, 0, 0], [0, 0, 0], [9.1875, 16.75, 23.0]),
        # terminated in the middle: what follows is worth nothing, and the sum ends: 2-1, 5+1/4
        ([0, 1, 0], [0, 1, 0], [5.25, 1.0, 23.0]),
        # truncated in the middle: bootstrapped from its last observation (20), but the sum ends: 11, 5+11/4
        ([0, 0, 0], [0, 1, 0], [7.75, 11.0, 23.0]),
    ],
)
def test_advantages_by_hand(terminated, ended, expected):
    found = compute_gae(rollout(terminated, ended), REWARDS, VALUES, AFTER, GAMMA, LAM)
    assert found[:, 0].tolist() == pytest.approx(expected)


def test_the_sums_that_scale_rewards_go_on_over_rollouts_and_end_with_an_episode():
    first = replace(rollout([0, 0, 0], [0, 1, 0]), rewards=REWARDS)
    gain, sums = behaviour._accumulate_discounted_rewards(first, torch.zeros(0), GAMMA)
    assert sums[:, 0].tolist() == [1.0, 2.5, 4.0]
    _, sums = behaviour._accumulate_discounted_rewards(first, gain, GAMMA)
    assert sums[:, 0].tolist() == [3.0, 3.5, 4.0]


def test_what_is_learnt_from_a_rollout_are_normalised_advantages_and_the_returns():
    """All values are 0.25, so the deltas are 1, 2 and 4 minus (0.25 - 0.25 / 2), which are summed backwards as
    above.
    """
    torch.manual_seed(0)
    policy, critic = Behaviour(SPACES, [4]), Tanh(SPACES, [4], 1, gain=0.0)
    torch.nn.init.constant_(critic.layers[-1].bias, 0.25)
    played = rollout([0, 0, 0], [0, 0, 0])
    settings = replace(SETTINGS, gamma=GAMMA, lam=LAM)
    _, _, logps, scaled, returns = behaviour._prepare_training_tensors(policy, critic, played, REWARDS, settings)
    last, second = 4 - 0.125, 2 - 0.125 + (4 - 0.125) / 4
    gains = torch.tensor([1 - 0.125 + second / 4, second, last])
    torch.testing.assert_close(returns, gains + 0.25)
    torch.testing.assert_close(scaled, (gains - gains.mean()) / gains.std())
    torch.testing.assert_close(logps, torch.full((3,), 1 / 3).log())


def test_scaled_rewards_are_bounded_and_the_learning_rate_falls_to_0(monkeypatch):
    """One reward of 1000 in 400 steps is 20 deviations of the sums."""
    settings, rates, scaled = replace(SETTINGS, updates=4, learning_rate=0.1), [], []
    policy, critic = Behaviour(SPACES, [4]), Tanh(SPACES, [4], 1, gain=1.0)
    optimizer = Adam([*policy.parameters(), *critic.parameters()], 0.1)
    prepare = behaviour._prepare_training_tensors

    def watched(policy, critic, played, rewards, settings):
        rates.append(optimizer.adam.param_groups[0]["lr"])
        scaled.append(rewards)
        return prepare(policy, critic, played, rewards, settings)

    monkeypatch.setattr(behaviour, "_prepare_training_tensors", watched)
    nothing = [0] * 400
    rewards = torch.zeros(400, 1).index_fill(0, torch.tensor([399]), 1000.0)
    played = replace(rollout(nothing, [*nothing[:-1], 1]), rewards=rewards)
    list(fit(policy, critic, optimizer, lambda: played, settings, torch.Generator()))
    assert rates == pytest.approx([0.1, 0.075, 0.05, 0.025])
    assert scaled[0][-1].item() == BOUND
    assert scaled[0][:-1].abs().max() == 0


def test_loss_by_hand():
    """The new probabilities are equal; the old ones put one ratio within the clip range and two outside it."""
    policy, critic = Behaviour(SPACES, [4]), Tanh(SPACES, [4], 1, gain=0.0)
    now = torch.full((3,), 1 / 3).log()
    old = now - torch.tensor([1.1, 1.5, 0.5]).log()
    advantage, returns = torch.tensor([2.0, 2.0, -2.0]), torch.tensor([1.0, 2.0, 3.0])
    batch = (torch.randn(3, 2), torch.tensor([0, 1, 2]), old, advantage, returns)
    value, metrics = ppo_loss(policy, critic, batch, replace(SETTINGS, entropy=0.1))
    surrogate = -(1.1 * 2 + 1.2 * 2 - 0.8 * 2) / 3  # the third is bound from below: its loss does not shrink further
    squares = (1 + 4 + 9) / 3 / 2
    entropy = -sum(now.exp() * now).item()
    assert value.item() == pytest.approx(surrogate + squares - 0.1 * entropy)
    assert {name: metric.item() for name, metric in metrics.items()} == pytest.approx(
        {"loss/policy": surrogate, "loss/value": squares, "entropy": entropy}
    )
    unclipped = -(1.1 * 2 + 1.5 * 2 - 0.5 * 2) / 3
    assert surrogate != pytest.approx(unclipped)


def test_a_clipped_step_pushes_no_further():
    policy, critic = Behaviour(SPACES, [4]), Tanh(SPACES, [4], 1, gain=0.0)
    policy_only = [parameter for parameter in policy.parameters() if parameter.numel()]
    for ratio, moves in ((1.5, False), (1.1, True), (0.5, True)):
        old = torch.full((4,), 1 / 3).log() - torch.tensor(ratio).log()
        batch = (torch.randn(4, 2), torch.tensor([0, 1, 2, 0]), old, torch.ones(4), torch.zeros(4))
        value, _ = ppo_loss(policy, critic, batch, SETTINGS)
        gradients = torch.autograd.grad(value, policy_only, allow_unused=True)
        assert any(g is not None and g.abs().sum() > 0 for g in gradients) == moves, ratio


def test_running_statistics_are_those_of_all_that_was_seen():
    torch.manual_seed(0)
    parts = [3 + 2 * torch.randn(count, 2) for count in (5, 1, 40)]
    running = RunningMoments(2)
    for part in parts:
        running.add(part)
    whole = torch.cat(parts)
    torch.testing.assert_close(running.mean, whole.mean(0))
    torch.testing.assert_close(running.variance, whole.var(0, correction=0))


def bandit(policy, generator):
    """Episodes of one step: the action that the larger of two numbers points to pays 1, the third action never."""

    def collect():
        observations = torch.randn((32, 4, 2), generator=generator)
        actions = policy.sample(observations.flatten(0, 1), generator).view(32, 4)
        rewards = (actions == observations.argmax(-1)).float()
        ended = torch.ones(32, 4, dtype=torch.bool)
        return Rollout(observations, actions, rewards, observations, ended, ended)

    return collect


def trained(settings):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    policy, critic = Behaviour(SPACES, [16]), Tanh(SPACES, [16], 1, gain=1.0)
    optimizer = Adam([*policy.parameters(), *critic.parameters()], settings.learning_rate, clip=0.5)
    rows = list(fit(policy, critic, optimizer, bandit(policy, generator), settings, generator))
    return policy, rows


def test_learns_a_bandit_and_beats_chance():
    policy, rows = trained(SETTINGS)
    assert len(rows) == SETTINGS.updates
    observations = torch.randn(500, 2)
    assert (policy.act(observations) == observations.argmax(-1)).float().mean() > 0.95
    assert rows[-1]["entropy"] < 0.7 < rows[0]["entropy"]
    torch.testing.assert_close(policy.normaliser.mean, torch.zeros(2), atol=0.1, rtol=0)


def test_same_seed_same_policy():
    (one, _), (same, _) = (trained(replace(SETTINGS, updates=3)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))


def test_rewards_of_any_size_teach_alike():
    """Rewards are divided by the deviation of their discounted sums, so that the losses do not depend on their unit."""
    torch.manual_seed(0)
    losses = []
    for unit in (1.0, 1000.0):
        torch.manual_seed(0)
        generator = torch.Generator().manual_seed(0)
        policy, critic = Behaviour(SPACES, [16]), Tanh(SPACES, [16], 1, gain=1.0)
        optimizer = Adam([*policy.parameters(), *critic.parameters()], 0.01)
        inner = bandit(policy, generator)

        def collect(inner=inner, unit=unit):
            found = inner()
            return replace(found, rewards=unit * found.rewards)

        rows = fit(policy, critic, optimizer, collect, replace(SETTINGS, updates=2), generator)
        losses.append([row["loss/value"].item() for row in rows])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert losses[0][1] > 0
