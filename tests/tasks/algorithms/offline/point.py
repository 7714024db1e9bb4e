"""A point on a line that should be moved to 0, and recorded episodes: a quarter by a good policy, the rest drift to the
right.
"""

import functools
from itertools import islice

import torch

from tasks.algorithms.offline import bc
from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.networks.mlp import MeanAction, Preferences
from tasks.algorithms.offline.transition_tensors import Spaces, Transitions

STEPS, EPISODES, GAMMA = 10, 60, 0.9
RATE = 0.01  # of learning, at which a hundred steps suffice


def spaces(discrete):
    return Spaces(1, 3 if discrete else 1, discrete)


def move(x, action):
    """The next position; the reward is minus its distance from 0."""
    return (x + 0.2 * action).clamp(-1.5, 1.5)


def recorded(discrete):
    """Episodes are truncated, never terminated. Discrete actions are left, stay and right."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(EPISODES, 1, generator=generator) * 2 - 1
    able = (torch.arange(EPISODES) % 4 == 0).unsqueeze(1)
    columns = []
    for _ in range(STEPS):
        noise = torch.rand(EPISODES, 1, generator=generator) * 2 - 1
        action = torch.where(able, 0.2 * noise - 0.8 * (5 * x).clamp(-1, 1), (noise + 0.4).clamp(-1, 1))
        action = (1.5 * action).clamp(-1, 1).round() if discrete else action
        after = move(x, action)
        columns.append((x, action, -after.abs(), after))
        x = after
    seen, actions, rewards, following = (
        torch.stack(column, dim=1).flatten(0, 1) for column in zip(*columns, strict=True)
    )
    return Transitions(
        observations=seen,
        actions=actions.squeeze(1).long() + 1 if discrete else actions,
        rewards=rewards.squeeze(1),
        next_observations=following,
        terminated=torch.zeros(len(seen), dtype=torch.bool),
        lengths=torch.full((EPISODES,), STEPS),
    )


def score(policy):
    """The policy's mean return from starts all over the line; the best possible is about -1."""
    x, total = torch.linspace(-1, 1, 41).unsqueeze(1), 0.0
    for _ in range(STEPS):
        action = policy.act(x)
        x = move(x, action.unsqueeze(1) - 1 if policy.spaces.discrete else action)
        total -= x.abs().mean().item()
    return total


@functools.cache
def cloned(discrete):
    """Behaviour cloning of the recordings, as a baseline."""
    data = recorded(discrete)
    policy = (Preferences if discrete else MeanAction)(spaces(discrete), [32])
    policy.normaliser.fit(data.observations)
    optimizer = Adam(policy.parameters(), 0.003)
    drain(bc.fit(policy, optimizer, data, batch_size=64, generator=torch.Generator().manual_seed(0)), 500)
    return policy


def drain(steps, count):
    """Take `count` steps; the metrics of the last."""
    *_, last = islice(steps, count)
    return last


def same(one, other):
    """Whether two modules have the same weights."""
    return all(torch.equal(mine, its) for mine, its in zip(one.parameters(), other.parameters(), strict=True))
