"""The small networks of the offline methods; each can act, and its state holds all that it needs for that.

`act` is greedy: the most probable, the highest-valued or the mean action. Observations are normalised inside, by
buffers that are saved with the weights, so that training and evaluation cannot differ in it.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tasks.algorithms.common.linear import Linear, Rectified
from tasks.algorithms.offline.transition_tensors import Spaces


def mlp(inputs: int, hidden: Sequence[int], outputs: int, layer_norm: bool = False) -> nn.Sequential:
    """Linear layers with rectified linear units between them, each followed by layer normalisation if that is asked
    for.
    """
    layers: list[nn.Module] = []
    for pair in pairwise([inputs, *hidden]):
        layers += [Rectified(*pair), nn.LayerNorm(pair[1])] if layer_norm else [Rectified(*pair)]
    return nn.Sequential(*layers, Linear(hidden[-1] if hidden else inputs, outputs))


class Normaliser(nn.Module):
    """(x - mean) / deviation of the data set's observations; (.., O) to (.., O)."""

    mean: Tensor
    deviation: Tensor

    if TYPE_CHECKING:

        def __call__(self, observations: Tensor) -> Tensor: ...

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("deviation", torch.ones(size))

    def fit(self, observations: Tensor) -> None:
        """Take mean and deviation of these (N, O); a constant dimension keeps deviation 1."""
        self.mean.copy_(observations.double().mean(0))
        deviation = observations.double().std(0, correction=0)
        self.deviation.copy_(torch.where(deviation > 1e-6, deviation, 1.0))

    def forward(self, observations: Tensor) -> Tensor:
        """Normalised observations."""
        return (observations - self.mean) / self.deviation


class Network(nn.Module):
    """A multilayer perceptron on normalised observations: (.., O) to (.., outputs)."""

    if TYPE_CHECKING:

        def __call__(self, observations: Tensor) -> Tensor: ...

    def __init__(self, spaces: Spaces, hidden: Sequence[int], outputs: int) -> None:
        super().__init__()
        self.spaces = spaces
        self.hidden = tuple(hidden)
        self.normaliser = Normaliser(spaces.observation)
        self.layers = mlp(spaces.observation, hidden, outputs)

    @property
    def sizes(self) -> dict[str, object]:
        """The arguments that it is made from besides its spaces, as JSON values; tasks/offline/policies/files.py loads
        it by them.
        """
        return {"hidden": list(self.hidden)}

    def forward(self, observations: Tensor) -> Tensor:
        """The raw outputs, in single precision whatever the products are in."""
        outputs: Tensor = self.layers(self.normaliser(observations))
        return outputs.float()


class Preferences(Network):
    """One number for each discrete action, such as the logits of a policy. Greedy is the highest."""

    def __init__(self, spaces: Spaces, hidden: Sequence[int]) -> None:
        super().__init__(spaces, hidden, spaces.action)

    @torch.no_grad()
    def act(self, observations: Tensor) -> Tensor:
        """(M, O) to (M,) long."""
        return self(observations).argmax(dim=-1)


class QValues(Preferences):
    """The value of each discrete action, future rewards discounted by `gamma`."""

    def __init__(self, spaces: Spaces, hidden: Sequence[int], gamma: float) -> None:
        super().__init__(spaces, hidden)
        self.gamma = gamma

    @property
    def sizes(self) -> dict[str, object]:
        """The sizes and the discount, which says what the values mean."""
        return {**super().sizes, "gamma": self.gamma}

    @torch.no_grad()
    def values(self, observations: Tensor) -> Tensor:
        """The return that it expects from here on, max Q: (M, O) to (M,)."""
        return self(observations).amax(dim=-1)


class MeanAction(Network):
    """A deterministic policy for continuous actions within [-1, 1]."""

    def __init__(self, spaces: Spaces, hidden: Sequence[int]) -> None:
        super().__init__(spaces, hidden, spaces.action)

    def forward(self, observations: Tensor) -> Tensor:
        """The action: (.., O) to (.., A)."""
        return super().forward(observations).tanh()

    @torch.no_grad()
    def act(self, observations: Tensor) -> Tensor:
        """(M, O) to (M, A)."""
        return self(observations)
