"""Logistic regression with an L2 penalty, by L-BFGS: convex, so that its solution depends on no seed and no learning
rate.

It minimises sum_i log(1 + exp(-y_i (w x_i + b))) + l2 / 2 |w|^2 over w and b, with y_i = 1 or -1; the bias b is free of
the penalty.
"""

import torch
from torch import Tensor

ITERATIONS = 500
TOLERANCE = 1e-7


def fit_logistic_regression(features: Tensor, labels: Tensor, l2: float) -> tuple[Tensor, Tensor]:
    """Weights (V,) and bias () in float64, from features (N, V), dense or sparse, and labels (N,) of truth values."""
    features = features.double()
    signs = 2 * labels.double() - 1
    weights = torch.zeros(features.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros((), dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS(
        [weights, bias],
        max_iter=ITERATIONS,
        tolerance_grad=TOLERANCE,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )

    def closure() -> float:
        solver.zero_grad()
        margins = signs * (features @ weights + bias)
        loss = torch.nn.functional.softplus(-margins).sum() + l2 / 2 * weights.square().sum()
        loss.backward()
        return loss.item()

    solver.step(closure)
    return weights.detach(), bias.detach()
