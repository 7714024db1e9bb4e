"""Batches of whole sequences, prompt and response, with explicit masks.

Masks are made from lengths, never from `token != pad`: where padding and end are one token, that test would drop the
end token from the loss, and the model would never learn to stop.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.algorithms.common import distributed
from tasks.algorithms.language.causal_lm import Parametrised, SequenceInputs

OPEN = 64  # rows that a document may still join, in packing
POOL = 50  # batches that are sorted by length together, in grouping


@dataclass(frozen=True)
class SequenceBatch:
    """Sequences padded on the right. B rows of T tokens."""

    tokens: Tensor  # (B, T) long
    attention: Tensor  # (B, T) bool, True on real tokens
    response: Tensor  # (B, T) bool, True on the tokens that are learned: the response's, its end token included
    document: Tensor | None = None  # (B, T) long, the number of each token's document, where a row holds several

    def on(self, model: Parametrised) -> "SequenceBatch":
        """The same batch on the model's device."""
        device = next(model.parameters()).device
        parts = (self.tokens, self.attention, self.response, self.document)
        return SequenceBatch(*(None if part is None else part.to(device) for part in parts))  # type: ignore[arg-type]

    def parts(self, count: int) -> Iterator["SequenceBatch"]:
        """The rows in `count` parts of nearly equal numbers, padded no further than needed; fewer parts than rows at
        most.
        """
        if count == 1:
            yield self
            return
        for rows in torch.arange(len(self.tokens)).tensor_split(min(count, len(self.tokens))):
            yield self.rows(rows, int(self.attention[rows].sum(1).max()))

    def rows(self, rows: Tensor, width: int) -> "SequenceBatch":
        """These rows (n,), cut to `width` tokens."""
        parts = (self.tokens, self.attention, self.response, self.document)
        return SequenceBatch(*(None if part is None else part[rows, :width] for part in parts))  # type: ignore[arg-type]

    def share(self, width: int | None = None) -> tuple["SequenceBatch", Tensor]:
        """This rank's rows, padded no further than needed unless `width` is given, and their numbers; perhaps none."""
        rows = torch.arange(len(self.tokens))[distributed.get_local_slice(len(self.tokens))]
        longest = int(self.attention[rows].sum(1).max()) if len(rows) else 0
        return self.rows(rows, longest if width is None else width), rows

    def inputs(self) -> SequenceInputs:
        """What the model is called with: where rows hold several documents, each token sees its own document only."""
        if self.document is None:
            return {"input_ids": self.tokens, "attention_mask": self.attention.long()}
        same_document = self.document.unsqueeze(2) == self.document.unsqueeze(1)  # (B, T, T)
        seen = same_document & self.attention.unsqueeze(1) & torch.ones_like(same_document).tril()
        seen |= torch.eye(
            same_document.shape[1], dtype=torch.bool, device=same_document.device
        )  # padding sees itself: no row of nan
        return {
            "input_ids": self.tokens,
            "attention_mask": seen.unsqueeze(1),
            "position_ids": self._compute_positions(),
        }

    def _compute_positions(self) -> Tensor:
        """Positions that begin with 0 in each document: (B, T)."""
        assert self.document is not None
        columns = torch.arange(self.document.shape[1], device=self.document.device).expand_as(self.document)
        first = self.document.diff(dim=1, prepend=self.document[:, :1] - 1) != 0
        return columns - torch.where(first, columns, 0).cummax(dim=1).values


def pack_documents(rows: Sequence[Sequence[tuple[Sequence[int], Sequence[bool]]]], pad: int) -> SequenceBatch:
    """Several documents a row, one behind the other; a document is its tokens, and whether each is learned.

    A document's first token is predicted from nothing, and never learned.
    """
    shape = (len(rows), max(sum(len(tokens) for tokens, _ in row) for row in rows))
    tokens = torch.full(shape, pad)
    attention = torch.zeros(shape, dtype=torch.bool)
    learned = torch.zeros(shape, dtype=torch.bool)
    document = torch.full(shape, -1)
    for number, row in enumerate(rows):
        start = 0
        for index, (ids, mask) in enumerate(row):
            end = start + len(ids)
            tokens[number, start:end], learned[number, start:end] = torch.tensor(ids), torch.tensor(mask)
            learned[number, start] = False
            attention[number, start:end] = True
            document[number, start:end] = index
            start = end
    return SequenceBatch(tokens, attention, learned, document if any(len(row) > 1 for row in rows) else None)


def assign_documents_to_rows(lengths: Sequence[int], order: Sequence[int], room: int) -> list[list[int]]:
    """The documents of `order` in rows of at most `room` tokens: each goes into the first open row that has room for
    it.

    First fit, with as many rows open as bring the search no further than `OPEN` rows back, so that order stays random.
    """
    rows: list[list[int]] = []
    left: list[int] = []
    for document in order:
        near = range(max(0, len(rows) - OPEN), len(rows))
        row = next((row for row in near if left[row] >= lengths[document]), len(rows))
        if row == len(rows):
            rows.append([])
            left.append(room)
        rows[row].append(document)
        left[row] -= lengths[document]
    return rows


def make_sequence_batch(
    prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], pad: int
) -> SequenceBatch:
    """Concatenate each prompt with its response and pad on the right to the longest."""
    lengths = [len(p) + len(r) for p, r in zip(prompts, responses, strict=True)]
    shape = (len(lengths), max(lengths))
    tokens = torch.full(shape, pad)
    attention = torch.zeros(shape, dtype=torch.bool)
    response = torch.zeros(shape, dtype=torch.bool)
    for row, (p, r) in enumerate(zip(prompts, responses, strict=True)):
        tokens[row, : lengths[row]] = torch.tensor([*p, *r])
        attention[row, : lengths[row]] = True
        response[row, len(p) : lengths[row]] = True
    return SequenceBatch(tokens, attention, response)


def iterate_shuffled_batches(count: int, size: int, epochs: int, generator: torch.Generator) -> Iterator[list[int]]:
    """Indices 0..count-1 in batches of `size`, in a new order each epoch; an epoch's last batch may be smaller."""
    for _ in range(epochs):
        order = torch.randperm(count, generator=generator).tolist()
        yield from (order[start : start + size] for start in range(0, count, size))


def iterate_length_grouped_batches(
    lengths: Sequence[int], size: int, epochs: int, generator: torch.Generator
) -> Iterator[list[int]]:
    """As `shuffled`, but with sequences of similar lengths in each batch.

    The sequences of `POOL` batches, in their random order, are sorted by length; the batches are shuffled again.
    """
    for _ in range(epochs):
        order = torch.randperm(len(lengths), generator=generator).tolist()
        batches: list[list[int]] = []
        for first in range(0, len(order), POOL * size):
            pool = sorted(order[first : first + POOL * size], key=lambda sequence: lengths[sequence])
            batches += [pool[start : start + size] for start in range(0, len(pool), size)]
        yield from (batches[number] for number in torch.randperm(len(batches), generator=generator).tolist())


def count_batches(count: int, size: int, epochs: int) -> int:
    """How many batches `shuffled` and `grouped` give."""
    return epochs * -(-count // size)
