"""Estimates of KL(pi || ref) from tokens sampled from pi, and a coefficient that steers it.

k1, k2 and k3 are Schulman's names (2020, http://joschu.net/blog/kl-approx.html). They differ in bias and variance as
values, and in what their gradients mean (arXiv:2506.09477). Each gradient below is the mean over samples from pi, with
the samples held fixed, as a loss has it:

- k1: 0. As a loss it does nothing but add noise; it is right as a penalty in the reward.
- k2: that of KL(pi || ref).
- k3: that of KL(ref || pi). It is the loss of GRPO's paper.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor


def k1(logps: Tensor, reference: Tensor) -> Tensor:
    """log pi - log ref: unbiased, of high variance, may be negative. Elementwise, as the others."""
    return logps - reference


def k2(logps: Tensor, reference: Tensor) -> Tensor:
    """(log pi - log ref)^2 / 2: biased, never negative, of low variance where pi is near ref."""
    return (logps - reference).square() / 2


def k3(logps: Tensor, reference: Tensor) -> Tensor:
    """ref / pi - log(ref / pi) - 1: unbiased, never negative, of low variance where pi is near ref and of high far away
    (arXiv:2402.03300, eq. 4).
    """
    ratio = reference - logps
    return ratio.exp() - ratio - 1


Estimator = Literal["k1", "k2", "k3"]
ESTIMATORS: dict[Estimator, Callable[[Tensor, Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3}


def compute_kl_slopes(estimator: Estimator, logps: Tensor, reference: Tensor) -> Tensor:
    """The derivative of each token's estimate by its own log-probability: by how much a loss of it pushes the token
    down.

    What all tokens share of it has no effect on average, since the mean of grad log pi over samples from pi is 0. k1's
    is 1 everywhere.
    """
    leaf = logps.detach().requires_grad_()
    (slope,) = torch.autograd.grad(ESTIMATORS[estimator](leaf, reference).sum(), leaf)
    return slope


class AdaptiveKl:
    """A coefficient of the KL penalty, adapted so that the KL stays near a target (arXiv:1909.08593, section 2.2).

    After each batch: coefficient *= 1 + rate * clip(KL / target - 1, -0.2, 0.2). With `target` None it stays as it is.
    """

    def __init__(self, coefficient: float, target: float | None, rate: float) -> None:
        self.coefficient = coefficient
        self.target = target
        self.rate = rate

    def update(self, kl: float) -> None:
        """Take one batch's measured KL into account."""
        if self.target is not None:
            self.coefficient *= 1 + self.rate * min(max(kl / self.target - 1, -0.2), 0.2)

    def state_dict(self) -> dict[str, Tensor]:
        """The coefficient."""
        return {"coefficient": torch.tensor(self.coefficient, dtype=torch.float64)}

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> None:
        """Load what `state_dict` returned."""
        self.coefficient = state["coefficient"].item()
