"""The policy gradient as a loss, and how much one batch's estimate of it varies."""

from collections.abc import Mapping

import torch
from torch import Tensor

from tasks.algorithms.common import distributed
from tasks.algorithms.language.causal_lm import CausalLM
from tasks.algorithms.language.completions import Completions, token_logps


def policy_gradient_loss(logps: Tensor, advantages: Tensor, mask: Tensor, responses: int) -> Tensor:
    """-(1 / responses) sum A_t log pi(a_t | s_t) over tokens (n, L): its gradient is these responses' share of the policy gradient, negated."""
    return -(advantages * logps * mask).sum() / responses


def gradient_variance(
    policy: CausalLM, batch: Completions, advantages: Mapping[str, Tensor], parts: int, temperature: float
) -> dict[str, float]:
    """The trace of the covariance of the batch's gradient under each of several `advantages` (N, L).

    The batch is cut into k = `parts` of whole prompts. Their gradients g_i are independent estimates of the same gradient. The
    batch's gradient is their mean, and the trace of its covariance is sum |g_i - mean|^2 / (k (k - 1)). Ranks take the parts
    in turn.
    """
    weights = [p for p in policy.parameters() if p.requires_grad]
    prompts = torch.arange(len(batch.prompts)).tensor_split(parts)
    sums = {name: [torch.zeros_like(weight, dtype=torch.float32) for weight in weights] for name in advantages}
    squares, used = dict.fromkeys(advantages, 0.0), 0
    for some in prompts:
        rows = torch.isin(batch.owner, some).nonzero().squeeze(1)
        if not len(rows):
            continue
        used += 1
        if used % distributed.size() != distributed.rank():
            continue
        micro_batch = batch.rows(rows).on(policy)
        logps, width = token_logps(policy, micro_batch, temperature), micro_batch.mask.shape[1]
        for name, values in advantages.items():
            part = values[rows, :width].to(logps.device)
            loss = policy_gradient_loss(logps, part, micro_batch.mask, len(rows))
            gradients = torch.autograd.grad(loss, weights, retain_graph=True)
            for total, gradient in zip(sums[name], gradients, strict=True):
                total += gradient
                squares[name] += gradient.double().square().sum().item()
    squares = distributed.total(squares)
    sums = {name: [distributed.summed(total) for total in totals] for name, totals in sums.items()}
    return {
        name: (squares[name] - sum(total.double().square().sum().item() for total in sums[name]) / used)
        / (used * max(1, used - 1))
        for name in advantages
    }
