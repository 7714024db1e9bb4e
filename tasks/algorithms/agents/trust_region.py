"""A step of trust region policy optimisation (TRPO, arXiv:1502.05477): the largest gain in the surrogate for a given
divergence.

The direction solves F x = g by conjugate gradients (appendix C), g being the surrogate's gradient and F the Fisher
information matrix, which is the curvature of the mean KL divergence. F is never formed: F v is a central difference of
the divergence's gradient along v, so that no second derivative of the model is needed. The step's length is that at
which the quadratic model of the divergence equals its bound; it is halved until the true divergence keeps to the bound
and the surrogate has risen.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

NEARBY = 1e-2  # how far along a direction the gradient of the divergence is taken, as a norm


@dataclass(frozen=True)
class TrustRegion:
    """The step's settings."""

    radius: float  # largest mean KL(old || new) over the tokens of a batch, in nats
    iterations: int  # of conjugate gradients
    damping: float  # added to the diagonal of the Fisher matrix
    halvings: int  # of the step, after which the policy stays as it was


@dataclass(frozen=True)
class Stepped:
    """What a step did."""

    kl: float  # the mean divergence from before
    gain: float  # of the surrogate
    share: float  # of the full step that was taken; 0: none kept to the bound
    gradient: float  # norm of g


def take_trust_region_step(
    weights: list[nn.Parameter],
    surrogate: Callable[[], Tensor],
    divergence: Callable[[], Tensor],
    settings: TrustRegion,
) -> Stepped:
    """Move `weights` in place. `surrogate` and `divergence` are of the weights as they are when called; both are
    scalars.

    `surrogate` is to be raised; `divergence` is the mean KL divergence of the distributions before the step from those
    now.
    """
    before = surrogate()
    gradient = _flatten_tensors(torch.autograd.grad(before, weights))
    norm = gradient.norm().item()
    start = _copy_flat_weights(weights)
    if not norm:
        return Stepped(0.0, 0.0, 0.0, norm)

    def product(vector: Tensor) -> Tensor:
        reach = NEARBY / vector.norm()
        ends = []
        for sign in (1.0, -1.0):
            _set_weights(weights, start + sign * reach * vector)
            ends.append(_flatten_tensors(torch.autograd.grad(divergence(), weights)))
        _set_weights(weights, start)
        curved: Tensor = (ends[0] - ends[1]) / (2 * reach) + settings.damping * vector
        return curved

    direction = conjugate_gradients(product, gradient, settings.iterations)
    curvature = direction @ product(direction)
    if curvature <= 0:
        return Stepped(0.0, 0.0, 0.0, norm)
    full = direction * (2 * settings.radius / curvature).sqrt()
    share = 1.0
    for _ in range(settings.halvings + 1):
        _set_weights(weights, start + share * full)
        with torch.no_grad():
            kl = divergence().item()
            gain = (surrogate() - before).item()
        if kl <= settings.radius and gain > 0:
            return Stepped(kl, gain, share, norm)
        share /= 2
    _set_weights(weights, start)
    return Stepped(0.0, 0.0, 0.0, norm)


def conjugate_gradients(product: Callable[[Tensor], Tensor], right: Tensor, iterations: int) -> Tensor:
    """An x with A x close to `right` (n,), A being symmetric and positive and known by its `product` with a vector.

    Hestenes and Stiefel 1952; it ends early where the residual is a hundred thousandth of `right`.
    """
    x = torch.zeros_like(right)
    residual = right.clone()
    search = right.clone()
    squared = residual @ residual
    enough = squared * 1e-10
    for _ in range(iterations):
        curved = product(search)
        length = squared / (search @ curved)
        x = x + length * search
        residual = residual - length * curved
        now = residual @ residual
        if now <= enough:
            break
        search = residual + now / squared * search
        squared = now
    return x


def _flatten_tensors(parts: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts])


def _copy_flat_weights(weights: list[nn.Parameter]) -> Tensor:
    return torch.cat([weight.detach().reshape(-1) for weight in weights]).clone()


@torch.no_grad()
def _set_weights(weights: list[nn.Parameter], values: Tensor) -> None:
    at = 0
    for weight in weights:
        weight.copy_(values[at : at + weight.numel()].view_as(weight))
        at += weight.numel()
