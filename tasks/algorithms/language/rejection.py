"""Rejection sampling for fine-tuning: of a prompt's sampled responses the best is kept (arXiv:2307.09288, section 3.2.2)."""

import torch
from torch import Tensor


def best_of_each(rewards: Tensor, owner: Tensor, minimum: float) -> Tensor:
    """The rows (long, ascending) of each prompt's best response, the first of equals, if its reward is at least `minimum`.

    `rewards` and `owner` are (N,). A prompt whose best response earns less is left out.
    """
    best: dict[int, int] = {}
    for row, (reward, prompt) in enumerate(zip(rewards.tolist(), owner.tolist(), strict=True)):
        if reward >= minimum and (prompt not in best or reward > rewards[best[prompt]]):
            best[prompt] = row
    return torch.tensor(sorted(best.values()), dtype=torch.long)
