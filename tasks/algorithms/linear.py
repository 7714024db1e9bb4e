"""A linear layer whose large matrix products oneDNN computes instead of torch's choice, MKL.

MKL does not use all that AMD's processors can do: on an EPYC of 2025 oneDNN needs half of its time for them. What comes out
differs in rounding only. It is the product that `torch.compile` uses for inference, with a gradient.
"""

from typing import Any

import torch
from torch import Tensor, nn

SMALLEST = 2**22  # multiplications; with fewer the call costs what the product saves


class Linear(nn.Linear):
    """torch's linear layer; large products in single precision on a CPU by oneDNN, all else as torch does it."""

    def forward(self, input: Tensor) -> Tensor:
        """(.., inputs) to (.., outputs)."""
        return _Product.apply(input, self.weight, self.bias) if self._suits(input) else super().forward(input)

    def _suits(self, input: Tensor) -> bool:
        large = input.numel() * self.out_features >= SMALLEST
        single = input.dtype == self.weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        return large and single and input.device.type == "cpu" and torch.backends.mkldnn.is_available()


class _Product(torch.autograd.Function):
    """x W^T + b; x (.., inputs), W (outputs, inputs)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        rows = gradient.flatten(end_dim=-2)
        of_x = _product(gradient, weight.t()) if ctx.needs_input_grad[0] else None
        of_bias = rows.sum(0) if ctx.needs_input_grad[2] else None
        of_weight = _product(rows.t(), x.flatten(end_dim=-2).t()) if ctx.needs_input_grad[1] else None
        return of_x, of_weight, of_bias


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def with_fast_products(model: Any) -> Any:
    """The same module, its plain linear layers made such ones in place; names and weights stay."""
    for layer in model.modules():
        if type(layer) is nn.Linear:
            layer.__class__ = Linear
    return model
