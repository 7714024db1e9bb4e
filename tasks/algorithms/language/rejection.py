"""Rejection sampling for fine-tuning: of a prompt's sampled responses the best is kept (arXiv:2307.09288, section 3.2.2)."""

import torch
from torch import Tensor


def best_of_each(rewards: Tensor, owner: Tensor, minimum: float) -> Tensor:
    """Of each prompt the first response with its highest reward, if that is at least `minimum`: rows, ascending (long).

    `rewards` and `owner` (N,); prompts whose best response is worse teach nothing and are left out.
    """
    best: dict[int, int] = {}
    for row, (reward, prompt) in enumerate(zip(rewards.tolist(), owner.tolist(), strict=True)):
        if reward >= minimum and (prompt not in best or reward > rewards[best[prompt]]):
            best[prompt] = row
    return torch.tensor(sorted(best.values()), dtype=torch.long)
