"""Several small networks of one shape side by side: each layer of all of them is one product.

A step of a network of 64 units is mostly the time of calls. Six side by side take 1.6 times as long as one, not six
times (LOG.md).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Stacked(nn.Module):
    """S multilayer perceptrons, which take and give (S, B, ..); each has the weights and the gradient that it would
    have alone.
    """

    def __init__(self, members: Sequence[nn.Sequential]) -> None:
        """Of networks of linear layers with rectified linear units between them, as `mlp` makes them; ValueError for
        others.
        """
        super().__init__()
        if any(not isinstance(layer, nn.Linear) for member in members for layer in member):
            raise ValueError("only linear layers can be stacked")
        layers = list(zip(*members, strict=True))
        self.weights = nn.ParameterList(
            torch.stack([linear.weight.detach().t() for linear in layer]) for layer in layers
        )
        self.biases = nn.ParameterList(
            torch.stack([linear.bias.detach() for linear in layer]).unsqueeze(1) for layer in layers
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """(S, B, inputs) to (S, B, outputs)."""
        last = len(self.weights) - 1
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            inputs = torch.baddbmm(bias, inputs, weight)
            if number < last:
                inputs = inputs.relu()
        return inputs
