"""A network that follows another one, so that bootstrapped targets change less than the network that is trained."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from tasks.algorithms.offline.networks.critics import polyak_update


class TargetNetwork(nn.Module):
    """A copy of `online`, moved towards it by `rate` of the way at every `every`-th update.

    `rate` 1 is the hard update of Mnih et al. 2015, `every` 1 with a small rate is Polyak averaging. The number of
    updates is part of its state.
    """

    updates: Tensor  # () long

    def __init__(self, online: nn.Module, *, every: int, rate: float) -> None:
        super().__init__()
        self.network = deepcopy(online).requires_grad_(False)
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))
        self.every = every
        self.rate = rate

    def forward(self, observations: Tensor) -> Tensor:
        """The copy's output, in single precision."""
        output: Tensor = self.network(observations)
        return output.float()

    def update(self, online: nn.Module) -> None:
        """Count one update of `online`; follow it at every `every`-th."""
        self.updates += 1
        if int(self.updates) % self.every == 0:
            polyak_update(self.network, online, self.rate)
