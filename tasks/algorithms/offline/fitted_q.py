"""Fitted Q evaluation: what a given policy would earn, estimated from a data set that others recorded.

Q <- argmin mean (Q(s, a) - r - gamma (1 - terminated) Q'(s', pi(s')))^2, again and again, Q' following Q; the estimate is the
mean of Q(s_0, pi(s_0)) over the episodes' first states (Le et al. 2019, arXiv:1903.08738, algorithm 3, by gradient steps).
Of actions that the data lacks it knows nothing, so it may be far off for a policy that strays from the data; but no target
lies beyond what rewards like the data's can add up to, or it might be off by any number.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from math import inf
from typing import Protocol

import torch
from torch import Tensor

from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.critics import Critics, bellman, follow, squared_errors
from tasks.algorithms.offline.transitions import Transitions

CHUNK = 8192  # observations that the policy acts on at once


class Policy(Protocol):
    """Any deterministic policy without a memory."""

    def act(self, observations: Tensor) -> Tensor:
        """(M, O) to (M,) long or (M, A) float."""
        ...


def acted(policy: Policy, observations: Tensor) -> Tensor:
    """The policy's actions for any number of observations."""
    return torch.cat([policy.act(chunk) for chunk in observations.split(CHUNK)])


def bounds(rewards: Tensor, gamma: float) -> tuple[float, float]:
    """The lowest and the highest discounted return that rewards like these (N,) can add up to in an episode of any length."""
    if gamma == 1:
        return -inf, inf
    return min(rewards.min().item(), 0.0) / (1 - gamma), max(rewards.max().item(), 0.0) / (1 - gamma)


def fit(
    critic: Critics,
    policy: Policy,
    data: Transitions,
    *,
    gamma: float,
    learning_rate: float,
    target_rate: float,
    batch_size: int,
    generator: torch.Generator,
) -> Iterator[Mapping[str, Tensor]]:
    """Train the critic in place, one step of metrics at a time, without end."""
    critic.normaliser.fit(data.observations)
    target, optimizer = deepcopy(critic), Adam(critic.parameters(), learning_rate)
    following = acted(policy, data.next_observations)  # the policy is deterministic, so once is enough
    low, high = bounds(data.rewards, gamma)
    while True:
        rows = torch.randint(len(data), (batch_size,), generator=generator)
        batch = data.rows(rows)
        with torch.no_grad():
            goals = bellman(batch, target(batch.next_observations, following[rows])[0], gamma)
        value = squared_errors(critic(batch.observations, batch.actions), goals.clamp(low, high))
        optimizer.step(value)
        follow(target, critic, target_rate)
        yield {"loss": value.detach()}


def estimate(critic: Critics, policy: Policy, data: Transitions) -> float:
    """The policy's discounted return from the data's initial states, as the critic that was fitted for it has it."""
    starts = data.observations[data.starts]
    with torch.no_grad():
        return critic(starts, acted(policy, starts)).mean().item()
