"""Batches of whole sequences, prompt and response, with explicit masks.

Masks are made from lengths, never from `token != pad`: where padding and end are one token, that test would drop the end
token from the loss, and the model would never learn to stop.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.algorithms.language.causal_lm import Parametrised


@dataclass(frozen=True)
class Batch:
    """Sequences padded on the right. B rows of T tokens."""

    tokens: Tensor  # (B, T) long
    attention: Tensor  # (B, T) bool, True on real tokens
    response: Tensor  # (B, T) bool, True on response tokens, the end token included

    def on(self, model: Parametrised) -> "Batch":
        """The same batch on the model's device."""
        device = next(model.parameters()).device
        return Batch(self.tokens.to(device), self.attention.to(device), self.response.to(device))

    def parts(self, count: int) -> Iterator["Batch"]:
        """The rows in `count` parts of nearly equal numbers, padded no further than needed; fewer parts than rows at most."""
        if count == 1:
            yield self
            return
        for rows in torch.arange(len(self.tokens)).tensor_split(min(count, len(self.tokens))):
            longest = int(self.attention[rows].sum(1).max())
            yield Batch(*(part[rows, :longest] for part in (self.tokens, self.attention, self.response)))


def make_batch(prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], pad: int) -> Batch:
    """Concatenate each prompt with its response and pad on the right to the longest."""
    lengths = [len(p) + len(r) for p, r in zip(prompts, responses, strict=True)]
    shape = (len(lengths), max(lengths))
    tokens = torch.full(shape, pad)
    attention, response = torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool)
    for row, (p, r) in enumerate(zip(prompts, responses, strict=True)):
        tokens[row, : lengths[row]] = torch.tensor([*p, *r])
        attention[row, : lengths[row]] = True
        response[row, len(p) : lengths[row]] = True
    return Batch(tokens, attention, response)


def shuffled(count: int, size: int, epochs: int, generator: torch.Generator) -> Iterator[list[int]]:
    """Indices 0..count-1 in batches of `size`, in a new order each epoch; an epoch's last batch may be smaller."""
    for _ in range(epochs):
        order = torch.randperm(count, generator=generator).tolist()
        yield from (order[start : start + size] for start in range(0, count, size))


def batches_per_run(count: int, size: int, epochs: int) -> int:
    """How many batches `shuffled` gives."""
    return epochs * -(-count // size)
