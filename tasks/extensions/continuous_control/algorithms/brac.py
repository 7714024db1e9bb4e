"""Behaviour-regularised actor-critic with a value penalty, BRAC-v (arXiv:1911.11361).

Q: r + gamma (1 - terminated) (E min_i Q'_i(s', a') - alpha KL(s')); policy: max E min_i Q_i(s, a) - alpha KL(s), a ~
pi, KL = KL(pi || b) to b, a clone of the behaviour fitted by likelihood. The KL is exact for both kinds of actions,
where the paper samples it; for discrete actions the expectation over a is exact too. As in the authors' code, the
policy only follows b in the first `warmup` steps, and there is no bonus for entropy. Unlike there, b is fitted along
with the policy and the critics.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.networks.critics import METRICS as CRITIC_METRICS
from tasks.algorithms.offline.networks.critics import Critics, bellman_targets, polyak_update, sum_mean_squared_errors
from tasks.algorithms.offline.networks.stochastic import Categorical, SquashedGaussian
from tasks.algorithms.offline.transition_tensors import Spaces, TransitionBatch, Transitions

Policy = Categorical | SquashedGaussian
METRICS = {
    "clone_loss": "The mean negative log-likelihood of the data's actions under the clone of the behaviour, in nats.",
    **CRITIC_METRICS,
    "policy_loss": "Alpha times `kl` minus the lowest Q; in the warm-up `kl` alone.",
    "kl": "The mean KL divergence of the policy from the clone of the behaviour, in nats.",
}


@dataclass(frozen=True)
class BracSettings:
    """The algorithm's settings."""

    gamma: float
    alpha: float  # weight of the KL divergence from the behaviour: value subtracted for each nat
    target_rate: float  # share of the way that the target critics move in a step
    warmup: int  # steps


class BRACAgent(nn.Module):
    """Policy, clone of the behaviour, critics and their targets, and the steps done."""

    updates: Tensor

    def __init__(self, spaces: Spaces, hidden: Sequence[int], critics: int, observations: Tensor) -> None:
        super().__init__()
        kind: type[Any] = Categorical if spaces.discrete else SquashedGaussian  # policy and clone are of one class
        self.policy = kind(spaces, hidden)
        self.clone = kind(spaces, hidden)
        self.critics = Critics(spaces, hidden, critics)
        for network in (self.policy, self.clone, self.critics):
            network.normaliser.fit(observations)
        self.targets = deepcopy(self.critics).requires_grad_(False)
        self.register_buffer("updates", torch.tensor(0))


def compute_policy_value(policy: Policy, critics: Critics, observations: Tensor, generator: torch.Generator) -> Tensor:
    """E min_i Q_i(s, a) over a ~ policy: exact for discrete actions, else of one sample. (B, O) to (B,)."""
    if isinstance(policy, Categorical):
        return (policy(observations).softmax(-1) * critics.every(observations).amin(0)).sum(-1)
    actions, _ = policy.sample(observations, 1, generator)
    return critics(observations, actions[0]).amin(0)


@torch.no_grad()
def compute_q_targets(
    agent: BRACAgent, batch: TransitionBatch, settings: BracSettings, generator: torch.Generator
) -> Tensor:
    """What the critics are fitted to: (B,)."""
    penalty: Tensor = settings.alpha * agent.policy.divergence(agent.clone, batch.next_observations)
    return bellman_targets(
        batch,
        compute_policy_value(agent.policy, agent.targets, batch.next_observations, generator) - penalty,
        settings.gamma,
    )


def policy_loss(
    agent: BRACAgent, observations: Tensor, settings: BracSettings, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The policy's loss, a scalar with gradient, and its mean KL to the clone."""
    divergence = agent.policy.divergence(agent.clone, observations).mean()
    if agent.updates < settings.warmup:
        return divergence, divergence.detach()
    gain = compute_policy_value(agent.policy, agent.critics, observations, generator).mean()
    return settings.alpha * divergence - gain, divergence.detach()


def fit(
    agent: BRACAgent,
    optimizers: Mapping[str, Adam],
    transitions: Transitions,
    settings: BracSettings,
    *,
    batch_size: int,
    generator: torch.Generator,
) -> Iterator[Mapping[str, Tensor]]:
    """Train in place, without end; yields each step's metrics (METRICS). Optimizers: clone, critics, policy."""
    for batch in transitions.batches(batch_size, generator):
        clone_loss = -agent.clone.log_likelihood(batch.observations, batch.actions).mean()
        optimizers["clone"].step(clone_loss)
        q = agent.critics(batch.observations, batch.actions)
        critic_loss = sum_mean_squared_errors(q, compute_q_targets(agent, batch, settings, generator))
        optimizers["critics"].step(critic_loss)
        loss, divergence = policy_loss(agent, batch.observations, settings, generator)
        optimizers["policy"].step(loss)
        polyak_update(agent.targets, agent.critics, settings.target_rate)
        agent.updates += 1
        yield {
            "clone_loss": clone_loss.detach(),
            "critic_loss": critic_loss.detach(),
            "policy_loss": loss.detach(),
            "kl": divergence,
            "q": q.detach().mean(),
        }
