"""Implicit Q-learning: no action is ever valued but those of the data (arXiv:2110.06169).

Value (eq. 5): min_V E |tau - 1(u < 0)| u^2, u = min_i Q'_i(s, a) - V(s): an expectile of what the data's actions are
worth, which nears the best of them as tau nears 1. Critics (eq. 6): min_Q E (r + gamma (1 - terminated) V(s') - Q_i(s,
a))^2. Policy (eq. 7): max_pi E w log pi(a|s), w = min(exp(beta (min_i Q'_i(s, a) - V(s))), w_max). As in the authors'
code, both advantages come from the lowest of the target critics, and in each step the value learns first, then the
policy and the critics from it. Unlike there, the policy's learning rate does not decay, and its actions may be
discrete.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.networks.critics import METRICS as CRITIC_METRICS
from tasks.algorithms.offline.networks.critics import Critics, bellman_targets, polyak_update, sum_mean_squared_errors
from tasks.algorithms.offline.networks.mlp import Network
from tasks.algorithms.offline.networks.stochastic import Categorical, Gaussian
from tasks.algorithms.offline.transition_tensors import Spaces, TransitionBatch

METRICS = {
    "value_loss": "The mean expectile loss of the value to the lowest target critic.",
    **CRITIC_METRICS,
    "policy_loss": "The mean negative log-likelihood of the data's actions, each weighted by w (d3rlpy: actor_loss).",
    "advantage": "The mean of the lowest target critic minus the value; below 0 where the expectile is above the mean.",
    "weight": "The mean weight w of the batch's actions.",
    "clipped": "The share of the batch's weights that are at max_weight, from 0 to 1.",
}


@dataclass(frozen=True)
class IqlSettings:
    """The algorithm's settings."""

    gamma: float
    expectile: float  # tau: 0.5 is the mean of what the data's actions are worth, 1 the best of them
    beta: float  # inverse temperature of the weights, in units of 1 / return; 0 clones the behaviour
    max_weight: float
    target_rate: float  # share of the way that the target critics move in a step


class IQLAgent(nn.Module):
    """Policy, value, critics and their targets."""

    def __init__(self, spaces: Spaces, hidden: Sequence[int], critics: int, observations: Tensor) -> None:
        super().__init__()
        self.policy = (Categorical if spaces.discrete else Gaussian)(spaces, hidden)
        self.value = Network(spaces, hidden, 1)
        self.critics = Critics(spaces, hidden, critics)
        for network in (self.policy, self.value, self.critics):
            network.normaliser.fit(observations)
        self.targets = deepcopy(self.critics).requires_grad_(False)

    @torch.no_grad()
    def worth(self, batch: TransitionBatch) -> Tensor:
        """What the data's actions are worth by the lowest target critic, without gradient: (B,)."""
        return self.targets(batch.observations, batch.actions).amin(0)

    def values(self, observations: Tensor) -> Tensor:
        """V: (B, O) to (B,)."""
        return self.value(observations).squeeze(-1)


def expectile_loss(differences: Tensor, expectile: float) -> Tensor:
    """The mean of |tau - 1(u < 0)| u^2 over differences u (B,); a scalar."""
    weights = torch.where(differences < 0, 1 - expectile, expectile)
    return (weights * differences.square()).mean()


def exponential_advantage_weights(advantages: Tensor, beta: float, max_weight: float) -> Tensor:
    """min(exp(beta A), max_weight): (B,) to (B,)."""
    return (beta * advantages).exp().clamp(max=max_weight)


def fit(
    agent: IQLAgent,
    optimizers: Mapping[str, Adam],
    batches: Iterable[TransitionBatch],
    settings: IqlSettings,
) -> Iterator[Mapping[str, Tensor]]:
    """Train in place, one step a batch; yields each step's metrics (METRICS). Optimizers: value, policy, critics."""
    for batch in batches:
        worth = agent.worth(batch)
        value_loss = expectile_loss(worth - agent.values(batch.observations), settings.expectile)
        optimizers["value"].step(value_loss)
        with torch.no_grad():
            values, next_values = agent.values(torch.cat([batch.observations, batch.next_observations])).chunk(2)
        advantages = worth - values
        weights = exponential_advantage_weights(advantages, settings.beta, settings.max_weight)
        policy_loss = -(weights * agent.policy.log_likelihood(batch.observations, batch.actions)).mean()
        optimizers["policy"].step(policy_loss)
        q = agent.critics(batch.observations, batch.actions)
        critic_loss = sum_mean_squared_errors(q, bellman_targets(batch, next_values, settings.gamma))
        optimizers["critics"].step(critic_loss)
        polyak_update(agent.targets, agent.critics, settings.target_rate)
        yield {
            "value_loss": value_loss.detach(),
            "critic_loss": critic_loss.detach(),
            "policy_loss": policy_loss.detach(),
            "advantage": advantages.mean(),
            "weight": weights.mean(),
            "clipped": (weights == settings.max_weight).float().mean(),
            "q": q.detach().mean(),
        }
