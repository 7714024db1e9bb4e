"""Several Q-functions of state and action, trained side by side, since the lowest of them over-estimates less."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tasks.algorithms.offline.networks.mlp import Normaliser, mlp
from tasks.algorithms.offline.transition_tensors import Spaces, TransitionBatch

METRICS = {
    "critic_loss": "The critics' mean squared errors to their targets, summed over the critics.",
    "q": "The mean Q(s, a) of the data's actions, a discounted return; if it never stops rising, the values diverge.",
}


class Critics(nn.Module):
    """`count` multilayer perceptrons on normalised observations, and on the action where that is continuous."""

    if TYPE_CHECKING:

        def __call__(self, observations: Tensor, actions: Tensor) -> Tensor: ...

    def __init__(self, spaces: Spaces, hidden: Sequence[int], count: int, layer_norm: bool = False) -> None:
        super().__init__()
        self.spaces = spaces
        self.normaliser = Normaliser(spaces.observation)
        sizes = (spaces.observation, spaces.action) if spaces.discrete else (spaces.observation + spaces.action, 1)
        self.members = nn.ModuleList(mlp(sizes[0], hidden, sizes[1], layer_norm) for _ in range(count))

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Q_i(s, a): (.., O) and (.., A), or (..) long, to (count, ..)."""
        if self.spaces.discrete:
            every = self.every(observations)
            return every.gather(-1, actions.expand(every.shape[:-1]).unsqueeze(-1)).squeeze(-1)
        inputs = torch.cat([self.normaliser(observations), actions], dim=-1)
        return torch.stack([member(inputs).squeeze(-1) for member in self.members]).float()

    def every(self, observations: Tensor) -> Tensor:
        """Q_i(s, .) of all discrete actions: (.., O) to (count, .., A)."""
        seen = self.normaliser(observations)
        return torch.stack([member(seen) for member in self.members]).float()


def bellman_targets(batch: TransitionBatch, next_values: Tensor, gamma: float) -> Tensor:
    """r + gamma V(s'): (B,). V(s') counts unless the episode terminated; a truncated one would have gone on."""
    return batch.rewards + gamma * ~batch.terminated * next_values


def sum_mean_squared_errors(q: Tensor, targets: Tensor) -> Tensor:
    """The sum over critics (E, B) of their mean squared errors; a scalar."""
    return (q - targets).square().mean(-1).sum()


@torch.no_grad()
def polyak_update(target: nn.Module, source: nn.Module, rate: float) -> None:
    """Move the target's weights towards the source's by `rate` of the way (Polyak averaging)."""
    torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), rate)
