"""ReBRAC: TD3+BC with a penalty in the critics' target as well, and critics with layer normalisation
(arXiv:2305.09836).

Critics: r + gamma (1 - terminated) (min_i Q'_i(s', a') - beta_critic |a' - b'|^2), with a' the smoothed action of the
target policy and b' the data's own action in s'. Policy, in every `policy_every`-th step:
max E lambda min_i Q_i(s, pi(s)) - beta_policy |pi(s) - a|^2, lambda = 1 / mean |min_i Q_i(s, pi(s))| over the batch,
as in the authors' code; squares are summed over components. Where an episode was truncated, b' is not known: there the
penalty is 0, while the authors leave that step out. Continuous actions only.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.networks.critics import METRICS as CRITIC_METRICS
from tasks.algorithms.offline.networks.critics import bellman_targets, sum_mean_squared_errors
from tasks.algorithms.offline.transition_tensors import TransitionBatch, Transitions
from tasks.extensions.continuous_control.algorithms.td3 import TD3Agent, sample_smoothed_actions, update_policy_delayed

METRICS = {
    **CRITIC_METRICS,
    "policy_loss": "The weighted distance to the data's actions minus the scaled lowest Q; of the last step in "
    "which the policy learned.",
    "distance": "The mean squared distance of the policy's actions to the data's, summed over "
    "components; of that step too.",
    "next_distance": "The same of the target policy's next actions, whose multiple the critics' targets lack.",
}


@dataclass(frozen=True)
class RebracSettings:
    """The algorithm's settings."""

    gamma: float
    policy_beta: float  # weight of the distance in the policy's loss, whose values are scaled to a mean size of 1
    critic_beta: float  # weight of the distance in the critics' targets: value subtracted for a squared distance of 1
    noise: float  # deviation of the noise on the target policy's actions, in units of half the box
    noise_clip: float  # largest noise
    target_rate: float  # share of the way that the targets move when they do
    policy_every: int  # steps


def collect_next_actions(transitions: Transitions) -> tuple[Tensor, Tensor]:
    """The data's action in each next observation, (N, A), and whether it is known, (N,): not at the end of an
    episode.
    """
    is_known = transitions.timesteps + 1 < transitions.lengths[transitions.episode]
    return transitions.actions.roll(-1, 0), is_known


@torch.no_grad()
def compute_q_targets_and_distance(
    agent: TD3Agent,
    batch: TransitionBatch,
    following: Tensor,
    is_known: Tensor,
    settings: RebracSettings,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """What the critics are fitted to, (B,), and the distance of the next actions from `following` (B, A), 0 where not
    `is_known`: (B,).
    """
    actions = sample_smoothed_actions(
        agent.target_policy, batch.next_observations, settings.noise, settings.noise_clip, generator
    )
    distance = is_known * (actions - following).square().sum(-1)
    lowest = agent.targets(batch.next_observations, actions).amin(0)
    return bellman_targets(batch, lowest - settings.critic_beta * distance, settings.gamma), distance


def policy_loss(agent: TD3Agent, batch: TransitionBatch, beta: float) -> tuple[Tensor, Tensor]:
    """The policy's loss, a scalar with gradient, and its mean squared distance to the data's actions."""
    actions = agent.policy(batch.observations)
    lowest = agent.critics(batch.observations, actions).amin(0)
    distance = (actions - batch.actions).square().sum(-1).mean()
    return beta * distance - lowest.mean() / lowest.detach().abs().mean(), distance.detach()


def fit(
    agent: TD3Agent,
    optimizers: Mapping[str, Adam],
    transitions: Transitions,
    settings: RebracSettings,
    *,
    batch_size: int,
    generator: torch.Generator,
) -> Iterator[Mapping[str, Tensor]]:
    """Train in place, without end; yields each step's metrics (METRICS). Optimizers: critics, policy."""
    following, is_known = collect_next_actions(transitions)
    while True:
        rows = torch.randint(len(transitions), (batch_size,), generator=generator).to(transitions.device)
        batch = transitions.rows(rows)
        targets, next_distance = compute_q_targets_and_distance(
            agent, batch, following[rows], is_known[rows], settings, generator
        )
        q = agent.critics(batch.observations, batch.actions)
        critic_loss = sum_mean_squared_errors(q, targets)
        optimizers["critics"].step(critic_loss)
        loss = partial(policy_loss, agent, batch, settings.policy_beta)
        update_policy_delayed(agent, optimizers["policy"], settings.policy_every, settings.target_rate, loss)
        yield {
            "critic_loss": critic_loss.detach(),
            "policy_loss": agent.last[0],
            "distance": agent.last[1],
            "next_distance": next_distance.mean(),
            "q": q.detach().mean(),
        }
