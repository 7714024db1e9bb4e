"""The policy gradient as a loss, plain and clipped, and how much one batch's estimate of it varies.

The clipped surrogate is that of PPO and GRPO, token by token, with the ways in which GRPO's variants sum it up.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tasks.algorithms.common import distributed
from tasks.algorithms.language.causal_lm import CausalLM
from tasks.algorithms.language.completions import Completions, compute_token_logps

Aggregation = Literal["grpo", "bnpo", "dr_grpo", "dapo"]
LOG_RATIO_LIMIT = 20.0  # |log pi - log pi_old| is clamped here, so that exp stays finite (as OpenRLHF does)


@dataclass(frozen=True)
class Totals:
    """Sizes of the whole batch of an optimizer step, so that a sum over its parts does not depend on how it is cut."""

    sequences: int
    tokens: int
    max_length: int
    part: tuple[int, int] | None = (
        None  # bnpo: sequences and tokens of the part, where ranks divide it among themselves
    )


def policy_gradient_loss(logps: Tensor, advantages: Tensor, mask: Tensor, responses: int) -> Tensor:
    """-(1 / responses) sum A_t log pi(a_t | s_t) over tokens (n, L): its gradient is these responses' share of the
    policy gradient, negated.
    """
    return -(advantages * logps * mask).sum() / responses


def estimate_gradient_variance(
    policy: CausalLM, batch: Completions, advantages: Mapping[str, Tensor], parts: int, temperature: float
) -> dict[str, float]:
    """The trace of the covariance of the batch's gradient under each of several `advantages` (N, L).

    The batch is cut into k = `parts` of whole prompts. Their gradients g_i are independent estimates of the same
    gradient. The batch's gradient is their mean, and the trace of its covariance is sum |g_i - mean|^2 / (k (k - 1)).
    Ranks take the parts in turn.
    """
    weights = [p for p in policy.parameters() if p.requires_grad]
    prompts = torch.arange(len(batch.prompts)).tensor_split(parts)
    sums = {name: [torch.zeros_like(weight, dtype=torch.float32) for weight in weights] for name in advantages}
    squares = dict.fromkeys(advantages, 0.0)
    used = 0
    for some in prompts:
        rows = torch.isin(batch.owner, some).nonzero().squeeze(1)
        if not len(rows):
            continue
        used += 1
        if used % distributed.get_world_size() != distributed.get_rank():
            continue
        micro_batch = batch.rows(rows).on(policy)
        logps = compute_token_logps(policy, micro_batch, temperature)
        width = micro_batch.mask.shape[1]
        for name, values in advantages.items():
            part = values[rows, :width].to(logps.device)
            loss = policy_gradient_loss(logps, part, micro_batch.mask, len(rows))
            gradients = torch.autograd.grad(loss, weights, retain_graph=True)
            for total, gradient in zip(sums[name], gradients, strict=True):
                total += gradient
                squares[name] += gradient.double().square().sum().item()
    squares = distributed.sum_values_over_ranks(squares)
    used = max(1, used)  # there may be no response
    sums = {name: [distributed.all_reduce_sum(total) for total in totals] for name, totals in sums.items()}
    return {
        name: (squares[name] - sum(total.double().square().sum().item() for total in sums[name]) / used)
        / (used * max(1, used - 1))
        for name in advantages
    }


def aggregate_loss(values: Tensor, mask: Tensor, how: Aggregation, totals: Totals) -> Tensor:
    """A part's share of the batch's loss, from values of its tokens (n, L); the shares add up.

    grpo: mean within each sequence, then over sequences; dapo: mean over all tokens of the batch (arXiv:2503.14476, eq.
    8); dr_grpo: sum over batch size times maximal length (arXiv:2503.20783); bnpo: mean over the tokens of this part,
    weighted by its share of the sequences, so that it alone depends on the cut (arXiv:2506.02864 and TRL).
    """
    masked = values * mask
    if how == "grpo":
        return (masked.sum(1) / mask.sum(1).clamp(min=1)).sum() / totals.sequences
    if how == "dapo":
        return masked.sum() / totals.tokens
    if how == "dr_grpo":
        return masked.sum() / (totals.sequences * totals.max_length)
    if totals.part is not None:
        return masked.sum() / max(1, totals.part[1]) * (totals.part[0] / totals.sequences)
    return masked.sum() / mask.sum().clamp(min=1) * (len(mask) / totals.sequences)


def compute_capped_importance_weights(logps: Tensor, sampled: Tensor, cap: float) -> Tensor:
    """min(pi / mu, cap) of each token, for what was sampled from mu and is learned from as if from pi: truncated
    importance sampling.

    `logps` are pi's, before the update, and `sampled` mu's: (N, L) each. No gradient flows through the weights (Yao et
    al. 2025, "Your efficient RL framework secretly brings you off-policy RL training"; truncation as in Ionides 2008).
    """
    ratio = (logps.detach() - sampled).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    return ratio.clamp(max=cap)


def clipped_policy_loss(
    logps: Tensor, old_logps: Tensor, advantages: Tensor, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor]:
    """-min(ratio A, clip(ratio) A) of each token, and whether clipping acts: two (N, L) (arXiv:1707.06347, eq. 7).

    `advantages` are (N, L), or (N, 1) where all tokens of a response share one.
    """
    ratio = (logps - old_logps).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    acts = ((ratio < 1 - clip_low) & (advantages < 0)) | ((ratio > 1 + clip_high) & (advantages > 0))
    return -torch.min(ratio * advantages, clipped * advantages), acts
