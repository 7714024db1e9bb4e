"""The one batch that all oracles judge, and our side of it: prompts and responses of different lengths."""

import torch

from tasks.algorithms.language.completions import make_completions

PAD = 0  # does not occur in the batch
PROMPTS = [[3, 4], [5], [6, 7, 8]]
CHOSEN = [[7, 2], [8, 9, 10, 2], [11, 2]]
REJECTED = [[8, 9, 2], [12, 3, 2], [3, 4, 5, 6, 2]]
OWNER = [0, 0, 1, 1, 2, 2]
RESPONSES = [response for pair in zip(CHOSEN, REJECTED, strict=True) for response in pair]
COMPLETIONS = make_completions(PROMPTS, OWNER, RESPONSES, PAD)


class Still:
    """An optimizer that changes neither weights nor gradients."""

    learning_rate = 0.0

    def step(self):
        return 0.0


def gradients(model):
    """Name -> gradient; zero for a weight without one."""
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.detach().clone() for n, p in model.named_parameters()}
