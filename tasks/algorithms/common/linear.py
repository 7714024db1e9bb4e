"""A linear layer whose large matrix products are computed by oneDNN on machines where it is faster than torch's
default.

On x86 the default is MKL. oneDNN takes half of its time on some of AMD's processors, and 1.1 to 1.4 times as much on
others; matmul_backend.py measures it. The results differ in rounding only.
The product is the one that `torch.compile` uses for inference; here it also has a gradient.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from tasks.algorithms.common import matmul_backend
from tasks.algorithms.common.errors import TrainingError

SMALLEST = 2**19  # multiplications; with fewer the call costs as much time as oneDNN saves


@cache
def uses_onednn() -> bool:
    """Whether large products are oneDNN's; TrainingError if POSTTRAIN_PRODUCTS names a library that torch lacks."""
    library = matmul_backend.get_or_measure_matmul_library()
    available = torch.backends.mkldnn.is_available()
    libraries = [matmul_backend.TORCH, *([matmul_backend.ONEDNN] if available else [])]
    if library not in libraries:
        raise TrainingError(
            f"{matmul_backend.VARIABLE} is {library!r}: of the libraries this torch has {', '.join(libraries)}"
        )
    return library == matmul_backend.ONEDNN


class Linear(nn.Linear):
    """torch's linear layer; large products in single precision by the machine's library, all else as torch does it."""

    activation = "none"  # what oneDNN applies to the product while it writes it

    def forward(self, input: Tensor) -> Tensor:
        """(.., inputs) to (.., outputs)."""
        return (
            onednn_linear(input, self.weight, self.bias, self.activation)
            if self._can_use_onednn(input)
            else self._forward_by_torch(input)
        )

    def _forward_by_torch(self, input: Tensor) -> Tensor:
        # torch multiplies rows with gaps between them one by one by a frozen weight, and may copy the weight for each.
        gaps = not self.weight.requires_grad and input.dim() > 2
        return super().forward(input.contiguous() if gaps else input)

    def _can_use_onednn(self, input: Tensor) -> bool:
        large = input.numel() * self.out_features >= SMALLEST
        single = input.dtype == self.weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        return large and single and input.device.type == "cpu" and uses_onednn()


class Rectified(Linear):
    """A linear layer and the rectified linear units after it: max(0, x W^T + b)."""

    activation = "relu"

    def _forward_by_torch(self, input: Tensor) -> Tensor:
        return super()._forward_by_torch(input).relu()


class _LinearContext(Protocol):
    """What a product saves for its gradient."""

    saved_tensors: tuple[Tensor, Tensor, Tensor | None]
    needs_input_grad: tuple[bool, bool, bool, bool]

    def save_for_backward(self, *tensors: Tensor | None) -> None: ...


class _Product(torch.autograd.Function):
    """x W^T + b, rectified or not; x (.., inputs), W (outputs, inputs)."""

    @staticmethod
    def forward(ctx: _LinearContext, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
        out = _multiply_by_onednn(x, weight, bias, activation)
        ctx.save_for_backward(x, weight, out if activation == "relu" else None)
        return out

    @staticmethod
    def backward(ctx: _LinearContext, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight, out = ctx.saved_tensors
        if out is not None:
            gradient = torch.ops.aten.threshold_backward(gradient, out, 0)
        rows = gradient.flatten(end_dim=-2)
        of_x = _multiply_by_onednn(gradient, weight.t()) if ctx.needs_input_grad[0] else None
        of_bias = rows.sum(0) if ctx.needs_input_grad[2] else None
        of_weight = _multiply_transposed(rows, x.flatten(end_dim=-2)) if ctx.needs_input_grad[1] else None
        return of_x, of_weight, of_bias, None


_differentiable: Callable[[Tensor, Tensor, Tensor | None, str], Tensor] = _Product.apply


def onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str = "none") -> Tensor:
    """x W^T + b by oneDNN, rectified where `activation` is "relu"; x (.., inputs), W (outputs, inputs), b
    (outputs,).
    """
    return _differentiable(x, weight, bias, activation)


def _multiply_by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none") -> Tensor:
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation, [], "")
    return out


def _multiply_transposed(left: Tensor, right: Tensor) -> Tensor:
    """left^T right, (N, L) and (N, R) to (L, R): oneDNN is several times faster with the shorter side first."""
    if left.shape[1] > right.shape[1]:
        return _multiply_by_onednn(right.t(), left.t()).t()
    return _multiply_by_onednn(left.t(), right.t())


class _Layered(Protocol):
    def modules(self) -> Iterator[nn.Module]: ...


Model = TypeVar("Model", bound=_Layered)


def replace_linear_layers(model: Model) -> Model:
    """The same module with its plain linear layers replaced by these; names, weights and tied weights stay."""
    for parent in [*model.modules()]:
        for name, layer in [*parent.named_children()]:
            if type(layer) is nn.Linear:
                fast = Linear(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
                fast.weight = layer.weight
                fast.bias = layer.bias
                setattr(parent, name, fast.train(layer.training))
    return model
