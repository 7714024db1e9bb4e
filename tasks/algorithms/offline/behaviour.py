"""A small PPO for the policies that data sets are recorded with: clipped surrogate and generalised advantages.

L = -E[min(r A, clip(r, 1 - c, 1 + c) A)] + E[(V(s) - R)^2] / 2 - entropy bonus, r = pi(a | s) / pi_old(a | s) (Schulman
et al. 2017, arXiv:1707.06347, eq. 7 and 9); A by GAE (arXiv:1506.02438, eq. 16). As in common implementations
observations and rewards are normalised by running statistics, weights start orthogonal, and the learning rate falls to
0. A truncated episode is bootstrapped from its true last observation. The language flow's PPO has another loop: it has
tokens, a reference model and no bootstrapping.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.networks.actors import BOUND, Behaviour, Tanh

METRICS = {
    "loss/policy": "The clipped surrogate loss, a mean over the update's minibatches.",
    "loss/value": "Half the mean squared error of the values to returns of scaled rewards, a mean over the "
    "minibatches.",
    "entropy": "The policy's mean entropy in the states that it visited, in nats; it falls as the policy settles.",
}


@dataclass(frozen=True)
class BehaviourSettings:
    """The algorithm's settings."""

    updates: int
    learning_rate: float
    gamma: float
    lam: float  # of GAE
    clip: float
    epochs: int
    minibatches: int
    entropy: float  # weight of the entropy bonus


@dataclass(frozen=True)
class Rollout:
    """T steps of n environments side by side."""

    observations: Tensor  # (T, n, O)
    actions: Tensor  # (T, n) or (T, n, A), as sampled
    rewards: Tensor  # (T, n)
    next_observations: Tensor  # (T, n, O), the true ones
    terminated: Tensor  # (T, n) bool
    ended: Tensor  # (T, n) bool: terminated or truncated


class RunningMoments:
    """Mean and variance of all that was seen so far (Chan et al. 1979)."""

    def __init__(self, *shape: int) -> None:
        self.count = 0
        self.mean = torch.zeros(shape)
        self.variance = torch.ones(shape)

    def add(self, values: Tensor) -> None:
        """Add values (N, *shape)."""
        count = self.count + len(values)
        gap = values.mean(0) - self.mean
        squares = self.variance * self.count + values.var(0, correction=0) * len(values)
        self.variance = (squares + gap.square() * self.count * len(values) / count) / count
        self.mean = self.mean + gap * len(values) / count
        self.count = count


def compute_gae(
    rollout: Rollout, rewards: Tensor, values: Tensor, next_values: Tensor, gamma: float, lam: float
) -> Tensor:
    """GAE, (T, n): sums end with an episode; the value after its end counts unless the episode terminated."""
    deltas = rewards + gamma * next_values * ~rollout.terminated - values
    result = torch.empty_like(deltas)
    follows = torch.zeros_like(deltas[0])
    for step in reversed(range(len(deltas))):
        follows = deltas[step] + gamma * lam * follows * ~rollout.ended[step]
        result[step] = follows
    return result


def ppo_loss(
    policy: Behaviour, critic: Tanh, batch: Sequence[Tensor], settings: BehaviourSettings
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss and its metrics; `batch`: observations, actions, their log-probabilities when sampled, advantages,
    returns.
    """
    observations, actions, old, advantage, returns = batch
    logps, entropy = policy.log_likelihood(observations, actions)
    ratio = (logps - old).exp()
    clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
    policy_part = -torch.minimum(ratio * advantage, clipped * advantage).mean()
    value_part = (critic(observations).squeeze(-1) - returns).square().mean() / 2
    total = policy_part + value_part - settings.entropy * entropy.mean()
    metrics = {"loss/policy": policy_part, "loss/value": value_part, "entropy": entropy.mean()}
    return total, {name: value.detach() for name, value in metrics.items()}


def fit(
    policy: Behaviour,
    critic: Tanh,
    optimizer: Adam,
    collect: Callable[[], Rollout],
    settings: BehaviourSettings,
    generator: torch.Generator,
) -> Iterator[dict[str, Tensor]]:
    """Train both in place; `collect` plays with the current policy. Yields the metrics (METRICS) of each update."""
    seen = RunningMoments(policy.spaces.observation)
    gains = RunningMoments()
    gain = torch.zeros(0)
    for update in range(settings.updates):
        optimizer.adam.param_groups[0]["lr"] = settings.learning_rate * (1 - update / settings.updates)
        rollout = collect()
        gain, summed = _accumulate_discounted_rewards(rollout, gain, settings.gamma)
        gains.add(summed.flatten())
        rewards = (rollout.rewards / (gains.variance + 1e-8).sqrt()).clamp(-BOUND, BOUND)
        data = _prepare_training_tensors(policy, critic, rollout, rewards, settings)
        minibatch_metrics: list[dict[str, Tensor]] = []
        for _ in range(settings.epochs):
            for rows in torch.randperm(len(data[0]), generator=generator).tensor_split(settings.minibatches):
                value, metrics = ppo_loss(policy, critic, [part[rows] for part in data], settings)
                optimizer.step(value)
                minibatch_metrics.append(metrics)
        seen.add(rollout.observations.flatten(0, 1))
        for network in (policy, critic):
            network.normaliser.mean.copy_(seen.mean)
            network.normaliser.deviation.copy_((seen.variance + 1e-8).sqrt())
        yield {name: torch.stack([row[name] for row in minibatch_metrics]).mean() for name in minibatch_metrics[0]}


def _accumulate_discounted_rewards(rollout: Rollout, before: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """The running discounted sums of rewards, whose variance scales the rewards: the last ones (n,), and all (T, n)."""
    gain = before if len(before) else torch.zeros_like(rollout.rewards[0])
    sums = []
    for reward, ended in zip(rollout.rewards, rollout.ended, strict=True):
        gain = gamma * gain + reward
        sums.append(gain)
        gain = gain * ~ended
    return gain, torch.stack(sums)


@torch.no_grad()
def _prepare_training_tensors(
    policy: Behaviour, critic: Tanh, rollout: Rollout, rewards: Tensor, settings: BehaviourSettings
) -> list[Tensor]:
    """What `loss` takes, of all T * n steps; advantages normalised."""
    values = critic(rollout.observations).squeeze(-1)
    next_values = critic(rollout.next_observations).squeeze(-1)
    gains = compute_gae(rollout, rewards, values, next_values, settings.gamma, settings.lam)
    observations = rollout.observations.flatten(0, 1)
    actions = rollout.actions.flatten(0, 1)
    logps, _ = policy.log_likelihood(observations, actions)
    scaled = (gains - gains.mean()) / (gains.std() + 1e-8)
    return [observations, actions, logps, scaled.flatten(), (gains + values).flatten()]
