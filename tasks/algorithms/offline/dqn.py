"""Deep Q-learning from transitions, with a target network theta' and double selection.

L(theta) = mean l(Q_theta(s, a) - y), y = r + gamma (1 - terminated) Q_theta'(s', argmax_a' Q_theta(s', a')): the online
network selects, the target network evaluates (van Hasselt et al. 2016, arXiv:1509.06461, eq. 4). Without `double` the
target network does both (Mnih et al. 2015). l is half the square, or Huber's: linear beyond 1.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.networks.critics import METRICS as CRITIC_METRICS
from tasks.algorithms.offline.networks.critics import bellman_targets
from tasks.algorithms.offline.networks.mlp import QValues
from tasks.algorithms.offline.networks.target import TargetNetwork
from tasks.algorithms.offline.transition_tensors import TransitionBatch

Values = Callable[[Tensor], Tensor]  # (B, O) normalised observations to (B, A)
Loss = Callable[[Values, Values, TransitionBatch], tuple[Tensor, dict[str, Tensor]]]
METRICS = {
    "loss": "The mean of l, half the squared or Huber's loss, of Q(s, a) - y over the batch.",
    "q": CRITIC_METRICS["q"],
    "td_error": "The mean |Q(s, a) - y|, the temporal-difference error, in units of return.",
}


def compute_td_errors(
    online: Values, target: Values, batch: TransitionBatch, gamma: float, double: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Q of all actions (B, A), Q of the data's actions (B,), and the latter minus y (B,); y has no gradient."""
    with torch.no_grad():
        evaluated = target(batch.next_observations)
        selecting = online(batch.next_observations) if double else evaluated
        following = evaluated.gather(1, selecting.argmax(dim=1, keepdim=True)).squeeze(1)
        goals = bellman_targets(batch, following, gamma)
    values = online(batch.observations)
    chosen = values.gather(1, batch.actions.unsqueeze(1)).squeeze(1)
    return values, chosen, chosen - goals


def huber_or_squared_loss(error: Tensor, huber: bool) -> Tensor:
    """The mean of l over the batch."""
    return functional.huber_loss(error, torch.zeros_like(error)) if huber else 0.5 * error.square().mean()


def dqn_loss(
    online: Values, target: Values, batch: TransitionBatch, *, gamma: float, double: bool, huber: bool
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss, a scalar with gradient, and its metrics (METRICS)."""
    _, chosen, error = compute_td_errors(online, target, batch, gamma, double)
    value = huber_or_squared_loss(error, huber)
    return value, {"loss": value.detach(), "q": chosen.detach().mean(), "td_error": error.detach().abs().mean()}


def fit(
    policy: QValues, target: TargetNetwork, optimizer: Adam, batches: Iterable[TransitionBatch], objective: Loss
) -> Iterator[Mapping[str, Tensor]]:
    """Train in place, one step a batch; yields what the objective measures.

    The batches' observations are normalised.
    """

    def online(observations: Tensor) -> Tensor:
        values: Tensor = policy.layers(observations)
        return values.float()

    for batch in batches:
        value, metrics = objective(online, target, batch)
        optimizer.step(value)
        target.update(policy.layers)
        yield metrics
