"""Muon: momentum, made orthogonal, as the update of a hidden matrix (Jordan et al. 2024; arXiv:2502.16982).

The same as torch.optim.Muon with `adjust_lr_fn="match_rms_adamw"`, but in single precision on a CPU: torch's Muon
multiplies in bfloat16, which is many times slower on a processor without bfloat16 products (LOG.md).
"""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from tasks.algorithms.common import distributed, sharding

MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of Jordan's quintic, steep at 0: 0.68 to 1.14 after five rounds
ROUNDS = 5


class Muon(torch.optim.Optimizer):
    """For matrices (A, B) only. Updates have the size of AdamW's: 0.2 in root mean square (arXiv:2502.16982, eq. 4).

    Of matrices in `divided` each rank has some rows. Their updates are gathered to be orthogonalised.
    """

    def __init__(
        self, parameters: Iterable[Tensor], lr: float, weight_decay: float, divided: Iterable[Tensor] = ()
    ) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})
        self.divided = {id(p) for p in divided}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # torch's may return a loss, which nothing here needs
        """Decay each weight by lr * weight_decay, then move it against Nesterov's momentum, orthogonalised."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                momentum = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                momentum.lerp_(p.grad, 1 - MOMENTUM)
                update = p.grad.lerp(momentum, MOMENTUM)
                whole = orthogonalise_matrix(distributed.gather_rows(update) if id(p) in self.divided else update)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(
                    sharding.select_local_rows(whole) if id(p) in self.divided else whole,
                    alpha=-group["lr"] * 0.2 * math.sqrt(max(whole.shape)),
                )


def orthogonalise_matrix(matrix: Tensor) -> Tensor:
    """U S V^T to about U V^T: (A, B) to (A, B), by Newton and Schulz's iteration.

    Singular values end between 0.68 and 1.14, unless they are below a hundredth of the matrix's norm.
    """
    x = matrix.bfloat16() if matrix.is_cuda else matrix.float()
    x = x.T if is_tall(matrix) else x
    x = x / x.norm().clamp(min=1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(ROUNDS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.T if is_tall(matrix) else x).to(matrix.dtype)


def is_tall(matrix: Tensor) -> bool:
    """More rows than columns: the iteration is cheaper on the transpose."""
    return matrix.shape[0] > matrix.shape[1]
