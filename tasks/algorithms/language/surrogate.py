"""The clipped surrogate of PPO and GRPO, token by token, and the ways in which GRPO's variants sum it up."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

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


def aggregate(values: Tensor, mask: Tensor, how: Aggregation, totals: Totals) -> Tensor:
    """A part's share of the batch's loss, from values of its tokens (n, L); the shares add up.

    grpo: mean within each sequence, then over sequences; dapo: mean over all tokens of the batch (arXiv:2503.14476, eq. 8);
    dr_grpo: sum over batch size times maximal length (arXiv:2503.20783); bnpo: mean over the tokens of this part, weighted by
    its share of the sequences, so that it alone depends on the cut (arXiv:2506.02864 and TRL).
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


def policy_loss(
    logps: Tensor, old_logps: Tensor, advantages: Tensor, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor]:
    """-min(ratio A, clip(ratio) A) of each token, and whether clipping acts: two (N, L) (arXiv:1707.06347, eq. 7).

    `advantages` are (N, L), or (N, 1) where all tokens of a response share one.
    """
    ratio = (logps - old_logps).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    acts = ((ratio < 1 - clip_low) & (advantages < 0)) | ((ratio > 1 + clip_high) & (advantages > 0))
    return -torch.min(ratio * advantages, clipped * advantages), acts
