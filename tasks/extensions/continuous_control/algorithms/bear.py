"""Bootstrapping error accumulation reduction: Q-learning within the support of the data's actions (arXiv:1906.00949).

Q: r + gamma (1 - terminated) max_j [lambda min_i Q'_i + (1 - lambda) max_i Q'_i](s', a_j), a_j ~ target policy; policy:
max E min_i Q_i(s, a) subject to MMD(pi, behaviour) <= threshold, by a Lagrange multiplier that gradient ascent moves.
The behaviour is modelled by a variational autoencoder. As in the authors' code, the MMD is the square root of the
biased estimate of MMD^2, and in the first `warmup` steps the policy only follows the behaviour. Unlike there, the MMD
compares actions in the box, not before their tanh, and the policy's noise is not clipped to half a deviation; the
policy's loss takes Q of one sample, not a mean over samples; and the policy plays its mean, not the best of ten
samples. Continuous actions only.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.networks.critics import METRICS as CRITIC_METRICS
from tasks.algorithms.offline.networks.critics import Critics, bellman_targets, polyak_update, sum_mean_squared_errors
from tasks.algorithms.offline.networks.stochastic import SquashedGaussian
from tasks.algorithms.offline.transition_tensors import Spaces, TransitionBatch, Transitions
from tasks.extensions.continuous_control.algorithms.vae import ActionModel

Kernel = Literal["laplacian", "gaussian"]
LOG_MULTIPLIER = (-5.0, 10.0)
METRICS = {
    "behaviour_loss": "The loss of the behaviour's autoencoder: the mean squared error of decoded actions plus the "
    "weighted KL divergence.",
    **CRITIC_METRICS,
    "policy_loss": "The multiplier times `mmd`; after the warm-up the lowest Q is subtracted.",
    "mmd": "The mean discrepancy (MMD) between actions of the policy and of the behaviour; it should not stay "
    "above the threshold.",
    "multiplier": "The weight of `mmd` in the policy's loss; it rises while `mmd` is above the "
    "threshold (d3rlpy: alpha).",
}


@dataclass(frozen=True)
class BearSettings:
    """The algorithm's settings."""

    gamma: float
    lam: float  # weight of the lowest critic in the target
    target_samples: int  # actions in the target's maximum
    kernel: Kernel
    bandwidth: float
    mmd_samples: int  # actions drawn from the policy, and as many from the behaviour
    threshold: float
    target_rate: float  # share of the way that target critics and target policy move in a step
    warmup: int  # steps


class BEARAgent(nn.Module):
    """Policy, behaviour model, critics, the two targets, the multiplier and the steps done."""

    updates: Tensor

    def __init__(self, spaces: Spaces, hidden: Sequence[int], critics: int, observations: Tensor) -> None:
        super().__init__()
        self.policy = SquashedGaussian(spaces, hidden)
        self.behaviour = ActionModel(spaces, hidden)
        self.critics = Critics(spaces, hidden, critics)
        for network in (self.policy, self.behaviour, self.critics):
            network.normaliser.fit(observations)
        self.target_policy = deepcopy(self.policy).requires_grad_(False)
        self.targets = deepcopy(self.critics).requires_grad_(False)
        self.log_multiplier = nn.Parameter(torch.tensor(0.0))
        self.register_buffer("updates", torch.tensor(0))

    def multiplier(self) -> Tensor:
        """The weight of the MMD in the policy's loss."""
        return self.log_multiplier.exp()


def maximum_mean_discrepancy(first: Tensor, other: Tensor, kernel: Kernel, bandwidth: float) -> Tensor:
    """Maximum mean discrepancy of samples (n, B, A) and (m, B, A) in each state: (B,), from the biased estimate of its
    square.

    Kernels exp(-|x - y|_1 / (2 bandwidth)) and exp(-|x - y|^2 / (2 bandwidth)), as in the authors' code.
    """

    def similarity(left: Tensor, right: Tensor) -> Tensor:
        difference = left.unsqueeze(0) - right.unsqueeze(1)
        distance = difference.abs() if kernel == "laplacian" else difference.square()
        return (-distance.sum(-1) / (2 * bandwidth)).exp().mean((0, 1))

    square = similarity(first, first) + similarity(other, other) - 2 * similarity(first, other)
    return (square + 1e-6).sqrt()  # keeps the root's slope at 0 finite


def mix_critics(q: Tensor, lam: float) -> Tensor:
    """lambda times the lowest critic plus (1 - lambda) times the highest: (E, ..) to (..)."""
    return lam * q.amin(0) + (1 - lam) * q.amax(0)


@torch.no_grad()
def compute_q_targets(
    agent: BEARAgent, batch: TransitionBatch, settings: BearSettings, generator: torch.Generator
) -> Tensor:
    """What the critics are fitted to: (B,)."""
    actions, _ = agent.target_policy.sample(batch.next_observations, settings.target_samples, generator)
    q = agent.targets(batch.next_observations.expand(len(actions), -1, -1), actions)
    return bellman_targets(batch, mix_critics(q, settings.lam).amax(0), settings.gamma)


def policy_loss(
    agent: BEARAgent, observations: Tensor, settings: BearSettings, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The policy's loss, a scalar with gradient, and its mean MMD to the behaviour, with gradient."""
    actions, _ = agent.policy.sample(observations, settings.mmd_samples, generator)
    likely = agent.behaviour.sample(observations, settings.mmd_samples, generator)
    distance = maximum_mean_discrepancy(actions, likely, settings.kernel, settings.bandwidth).mean()
    loss = agent.multiplier().detach() * distance
    if agent.updates >= settings.warmup:
        loss = loss - agent.critics(observations, actions[0]).amin(0).mean()
    return loss, distance


def fit(
    agent: BEARAgent,
    optimizers: Mapping[str, Adam],
    transitions: Transitions,
    settings: BearSettings,
    *,
    batch_size: int,
    generator: torch.Generator,
) -> Iterator[Mapping[str, Tensor]]:
    """Train in place, without end; yields each step's metrics (METRICS).

    Optimizers: behaviour, critics, policy, multiplier.
    """
    for batch in transitions.batches(batch_size, generator):
        behaviour_loss = agent.behaviour.loss(batch.observations, batch.actions, generator)
        optimizers["behaviour"].step(behaviour_loss)
        q = agent.critics(batch.observations, batch.actions)
        critic_loss = sum_mean_squared_errors(q, compute_q_targets(agent, batch, settings, generator))
        optimizers["critics"].step(critic_loss)
        loss, distance = policy_loss(agent, batch.observations, settings, generator)
        optimizers["policy"].step(loss)
        optimizers["multiplier"].step(-agent.multiplier() * (distance.detach() - settings.threshold))
        agent.log_multiplier.data.clamp_(*LOG_MULTIPLIER)
        polyak_update(agent.targets, agent.critics, settings.target_rate)
        polyak_update(agent.target_policy, agent.policy, settings.target_rate)
        agent.updates += 1
        yield {
            "behaviour_loss": behaviour_loss.detach(),
            "critic_loss": critic_loss.detach(),
            "policy_loss": loss.detach(),
            "mmd": distance.detach(),
            "multiplier": agent.multiplier().detach(),
            "q": q.detach().mean(),
        }
