"""TD3: a deterministic actor-critic that plays an environment and learns from what it remembers (Fujimoto et al. 2018,
arXiv:1802.09477).

Critics: r + gamma (1 - terminated) min_i Q'_i(s', a'), a' = pi'(s') + noise, the noise clipped, and a' to the box (eq.
10, 14). Policy, in every `policy_every`-th step: max E Q_1(s, pi(s)) (Algorithm 1). The targets of policy and critics
follow in those steps too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.networks.critics import METRICS as CRITIC_METRICS
from tasks.algorithms.offline.networks.critics import Critics, bellman_targets, polyak_update, sum_mean_squared_errors
from tasks.algorithms.offline.networks.mlp import MeanAction
from tasks.algorithms.offline.transition_tensors import Spaces, TransitionBatch

METRICS = {
    **CRITIC_METRICS,
    "q": "The mean Q(s, a) of the remembered actions, a discounted return; if it never stops "
    "rising, the values diverge.",
    "policy_loss": "Minus the mean Q of the policy's actions; of the last step in which the policy learned.",
    "distance": "The mean squared distance of the policy's actions to those that were played; of that step too.",
}


@dataclass(frozen=True)
class Td3Settings:
    """The algorithm's settings."""

    gamma: float
    noise: float  # deviation of the noise on the target policy's actions, in units of half the box
    noise_clip: float  # largest noise
    target_rate: float  # share of the way that the targets move when they do
    policy_every: int  # steps


class TD3Agent(nn.Module):
    """Policy and critics, the targets of both, the policy's last metrics, and the steps done."""

    updates: Tensor
    last: Tensor  # (2,): policy_loss and distance

    def __init__(
        self, spaces: Spaces, hidden: Sequence[int], critics: int, observations: Tensor, layer_norm: bool = False
    ) -> None:
        super().__init__()
        self.policy = MeanAction(spaces, hidden)
        self.critics = Critics(spaces, hidden, critics, layer_norm)
        for network in (self.policy, self.critics):
            network.normaliser.fit(observations)
        self.target_policy = deepcopy(self.policy).requires_grad_(False)
        self.targets = deepcopy(self.critics).requires_grad_(False)
        self.register_buffer("updates", torch.tensor(0))
        self.register_buffer("last", torch.zeros(2))


@torch.no_grad()
def sample_smoothed_actions(
    policy: MeanAction, observations: Tensor, noise: float, clip: float, generator: torch.Generator
) -> Tensor:
    """The policy's actions with noise, within the box: (B, O) to (B, A)."""
    actions: Tensor = policy(observations)
    drawn = torch.randn(actions.shape, generator=generator).to(actions.device)
    return (actions + (noise * drawn).clamp(-clip, clip)).clamp(-1, 1)


@torch.no_grad()
def compute_q_targets(
    agent: TD3Agent, batch: TransitionBatch, settings: Td3Settings, generator: torch.Generator
) -> Tensor:
    """What the critics are fitted to: (B,)."""
    actions = sample_smoothed_actions(
        agent.target_policy, batch.next_observations, settings.noise, settings.noise_clip, generator
    )
    return bellman_targets(batch, agent.targets(batch.next_observations, actions).amin(0), settings.gamma)


def policy_loss(agent: TD3Agent, batch: TransitionBatch) -> tuple[Tensor, Tensor]:
    """The policy's loss, a scalar with gradient, and its mean squared distance to the actions that were played."""
    actions = agent.policy(batch.observations)
    distance = (actions.detach() - batch.actions).square().mean()
    return -agent.critics(batch.observations, actions)[0].mean(), distance


def update_policy_delayed(
    agent: TD3Agent, optimizer: Adam, policy_every: int, target_rate: float, loss: Callable[[], tuple[Tensor, Tensor]]
) -> None:
    """Count a step; in every `policy_every`-th one the policy learns by the loss and both targets follow.

    `loss` gives it and the distance.
    """
    if agent.updates % policy_every == 0:
        value, distance = loss()
        optimizer.step(value)
        polyak_update(agent.targets, agent.critics, target_rate)
        polyak_update(agent.target_policy, agent.policy, target_rate)
        agent.last = torch.stack([value.detach(), distance])
    agent.updates += 1


def fit(
    agent: TD3Agent,
    optimizers: Mapping[str, Adam],
    batches: Iterable[TransitionBatch],
    settings: Td3Settings,
    loss: Callable[[TD3Agent, TransitionBatch], tuple[Tensor, Tensor]],
    generator: torch.Generator,
) -> Iterator[Mapping[str, Tensor]]:
    """Train in place, one step a batch; yields each step's metrics (METRICS).

    Optimizers: critics, policy. `loss` is the policy's.
    """
    for batch in batches:
        q = agent.critics(batch.observations, batch.actions)
        critic_loss = sum_mean_squared_errors(q, compute_q_targets(agent, batch, settings, generator))
        optimizers["critics"].step(critic_loss)
        update_policy_delayed(
            agent, optimizers["policy"], settings.policy_every, settings.target_rate, partial(loss, agent, batch)
        )
        yield {
            "critic_loss": critic_loss.detach(),
            "policy_loss": agent.last[0],
            "distance": agent.last[1],
            "q": q.detach().mean(),
        }
