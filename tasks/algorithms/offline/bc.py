"""Behaviour cloning: fit the policy to the data's actions; on the best trajectories only it is 10%BC.

L(theta) = -mean log pi_theta(a | s) for discrete actions; for continuous ones the mean of (pi_theta(s) - a)^2, over
components too (Pomerleau 1989). Cloning the best tenth is a baseline of Chen et al. 2021 (arXiv:2106.01345, section
5.1), who take a tenth of the timesteps; here, as in CORL, it is a tenth of the trajectories.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.hindsight import Relabelled
from tasks.algorithms.offline.networks.mlp import MeanAction, Preferences
from tasks.algorithms.offline.transition_tensors import TransitionBatch, Transitions

Policy = Preferences | MeanAction
METRICS = {
    "loss": "The cross-entropy of discrete actions in nats, the mean squared error of continuous ones.",
    "accuracy": "The share of the data's actions that the policy would choose, from 0 to 1; of discrete actions only.",
}


def behaviour_cloning_loss(policy: Policy, batch: TransitionBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss, a scalar with gradient, and its metrics."""
    outputs = policy(batch.observations)
    if policy.spaces.discrete:
        value = functional.cross_entropy(outputs, batch.actions)
        agreement = (outputs.detach().argmax(-1) == batch.actions).float().mean()
        return value, {"loss": value.detach(), "accuracy": agreement}
    value = functional.mse_loss(outputs, batch.actions)
    return value, {"loss": value.detach()}


def fit(
    policy: Policy,
    optimizer: Adam,
    transitions: Transitions | Relabelled,
    *,
    batch_size: int,
    generator: torch.Generator,
) -> Iterator[Mapping[str, Tensor]]:
    """Train in place, without end; yields each step's metrics (METRICS)."""
    for batch in transitions.batches(batch_size, generator):
        value, metrics = behaviour_cloning_loss(policy, batch)
        optimizer.step(value)
        yield metrics
