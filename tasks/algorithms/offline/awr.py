"""Advantage-weighted regression: clone the data's actions, each weighted by its advantage (arXiv:1910.00177).

Value: min_V E (R - V(s))^2; policy: max_pi E w log pi(a|s), w = min(exp(A / beta), w_max), A = R - V(s) and R by
TD(lambda) over the recorded episodes. As in the authors' code, A is standardised over the data set first, so that beta
has no unit. Unlike there, value and policy take a step in turn, R and w are recomputed every `refresh_every` steps, and
a Gaussian's deviation is learnt. The data set is fixed, as in the paper's experiments with static data sets.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.networks.critics import bellman_targets
from tasks.algorithms.offline.networks.mlp import Network
from tasks.algorithms.offline.networks.stochastic import Categorical, Gaussian
from tasks.algorithms.offline.transition_tensors import Spaces, Transitions

CHUNK = 65_536  # observations valued at once
METRICS = {
    "value_loss": "The mean squared error of the value to the returns R.",
    "policy_loss": "The mean negative log-likelihood of the data's actions, each weighted by w.",
    "log_likelihood": "The mean log-likelihood of the data's actions, not weighted, in nats.",
    "weight": "The mean weight w of the batch's actions.",
    "clipped": "The share of the batch's weights that are at max_weight, from 0 to 1.",
}


@dataclass(frozen=True)
class AwrSettings:
    """The algorithm's settings."""

    gamma: float
    lam: float  # 0: one step, then the value; 1: the recorded rewards to the end
    beta: float  # in standard deviations of the advantage; a small one trusts the best actions only
    max_weight: float
    refresh_every: int  # steps


class AWRAgent(nn.Module):
    """Policy and value, the returns and weights that they use until the next refresh, (N,) each, and the steps done."""

    returns: Tensor
    weights: Tensor
    updates: Tensor

    def __init__(self, spaces: Spaces, hidden: Sequence[int], transitions: Transitions) -> None:
        super().__init__()
        self.policy = (Categorical if spaces.discrete else Gaussian)(spaces, hidden)
        self.value = Network(spaces, hidden, 1)
        for network in (self.policy, self.value):
            network.normaliser.fit(transitions.observations)
        self.register_buffer("returns", torch.zeros(len(transitions)))
        self.register_buffer("weights", torch.zeros(len(transitions)))
        self.register_buffer("updates", torch.tensor(0))

    @torch.no_grad()
    def values(self, observations: Tensor) -> Tensor:
        """V of (N, O): (N,)."""
        return torch.cat([self.value(part).squeeze(-1) for part in observations.split(CHUNK)])


def td_lambda_returns(transitions: Transitions, next_values: Tensor, gamma: float, lam: float) -> Tensor:
    """R_t = r_t + gamma ((1 - lambda) V(s_t+1) + lambda R_t+1) from V of the next observations, (N,) to (N,).

    An episode's last R is r + gamma V(s') if it was truncated, r if it terminated.
    """
    last = transitions.timesteps + 1 == transitions.lengths[transitions.episode]
    shares = torch.where(last, 1.0, 1 - lam)  # of the value; the rest is the next step's return
    rewards = bellman_targets(transitions, shares * next_values, gamma)
    return replace(transitions, rewards=rewards).returns_to_go(gamma * lam)


def standardised_advantage_weights(advantages: Tensor, beta: float, max_weight: float) -> Tensor:
    """min(exp(A / beta), max_weight) with A standardised: (N,) to (N,)."""
    standard = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-5)
    return (standard / beta).exp().clamp(max=max_weight)


def refresh_returns_and_weights(agent: AWRAgent, transitions: Transitions, settings: AwrSettings) -> None:
    """Recompute the returns and weights of the whole data set."""
    next_values = agent.values(transitions.next_observations)
    returns = td_lambda_returns(transitions, next_values, settings.gamma, settings.lam)
    advantages = returns - agent.values(transitions.observations)
    agent.returns.copy_(returns)
    agent.weights.copy_(standardised_advantage_weights(advantages, settings.beta, settings.max_weight))


def fit(
    agent: AWRAgent,
    optimizers: Mapping[str, Adam],
    transitions: Transitions,
    settings: AwrSettings,
    *,
    batch_size: int,
    generator: torch.Generator,
) -> Iterator[Mapping[str, Tensor]]:
    """Train in place, without end; yields each step's metrics (METRICS). Optimizers: value, policy."""
    while True:
        if agent.updates % settings.refresh_every == 0:
            refresh_returns_and_weights(agent, transitions, settings)
        rows = torch.randint(len(transitions), (batch_size,), generator=generator).to(transitions.device)
        observations = transitions.observations[rows]
        weights = agent.weights[rows]
        value_loss = (agent.value(observations).squeeze(-1) - agent.returns[rows]).square().mean()
        optimizers["value"].step(value_loss)
        log_likelihood = agent.policy.log_likelihood(observations, transitions.actions[rows])
        policy_loss = -(weights * log_likelihood).mean()
        optimizers["policy"].step(policy_loss)
        agent.updates += 1
        yield {
            "value_loss": value_loss.detach(),
            "policy_loss": policy_loss.detach(),
            "log_likelihood": log_likelihood.detach().mean(),
            "weight": weights.mean(),
            "clipped": (weights == settings.max_weight).float().mean(),
        }
