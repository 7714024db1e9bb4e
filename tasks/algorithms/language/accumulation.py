"""One optimizer step on a batch of responses that passes through the model in parts, on one rank or several.

An algorithm knows neither parts nor ranks:

    step = AccumulatedStep(optimizer, ("clip_ratio",))
    for part in divide(policy, batch, cut_into_micro_batches(batch, rows, size)):
        step.backward(part, loss_of(part), {"clip_ratio": clipped_tokens_of(part)})
    metrics = step.finish()

A loss is a part's share of the whole batch's loss, so that neither gradients nor sums depend on how a batch is cut.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

from tasks.algorithms.common import distributed, sharding, shared_draws
from tasks.algorithms.common.optimizer import Optimizer, check_finite
from tasks.algorithms.language.causal_lm import Parametrised
from tasks.algorithms.language.completions import Completions


@dataclass(frozen=True)
class BatchPart:
    """The n responses of a batch that this rank passes through the model at once."""

    rows: Tensor  # (n,) long, where they stand in the batch
    completions: Completions  # the same n, on the model's device, up to l tokens long
    rows_of_all_ranks: Tensor  # (m,) long, the responses that the ranks pass together
    counts: float  # 1; 0 where ranks divide the model and this one passes a response only to take part

    def select(self, values: Tensor) -> Tensor:
        """These responses' values out of the batch's (N, L) or (N, 1): (n, l) or (n, 1), on the model's device."""
        return values[self.rows, : self.completions.mask.shape[1]].to(self.completions.mask.device)


class BatchOfPrompts(Protocol):
    """A batch that is cut between prompts, as Pairs and Labelled are."""

    @property
    def responses(self) -> Completions:
        """All responses."""
        ...

    def parts(self, count: int, /) -> Iterator[Self]:
        """The batch in at most `count` parts."""
        ...

    def share(self, model: object, /, padded: bool = False) -> tuple[Self, Tensor, float] | None:
        """What this rank passes through the model, the rows of its responses, and whether they count (1 or 0)."""
        ...


Batch = TypeVar("Batch", bound=BatchOfPrompts)


class AccumulatedStep:
    """The gradient, the loss and further sums of a batch, added up part by part; then one step of the optimizer."""

    def __init__(self, optimizer: Optimizer, names: Sequence[str] = ()) -> None:
        self.optimizer = optimizer
        self.loss = torch.zeros(())
        self.sums = dict.fromkeys(names, 0.0)

    def backward(self, part: BatchPart, loss: Tensor, sums: Mapping[str, Tensor | float] | None = None) -> None:
        """Add a part's share of the loss, its gradient, and the sums by their names."""
        portion = loss * part.counts
        portion.backward()
        self.loss = self.loss + portion.detach().cpu()
        for name, value in (sums or {}).items():
            self.sums[name] += float(value) * part.counts

    def finish(self) -> dict[str, float]:
        """Update the weights; the batch's `loss`, the sums over all ranks, and the gradient's norm, `grad_norm`.

        TrainingError where loss or gradient is not finite, before any weight moves.
        """
        totals = distributed.sum_values_over_ranks({"loss": self.loss.item(), **self.sums})
        check_finite("loss", totals["loss"])
        return {**totals, "grad_norm": self.optimizer.step()}


def iterate_batch_parts(model: Parametrised, batch: Completions, parts: Iterable[Tensor]) -> Iterator[BatchPart]:
    """Of each part of the batch (responses, long) what this rank passes through the model.

    A rank leaves out a part of which it has nothing. Where ranks divide the model it passes one response all the same,
    which does not count.
    """
    for part in parts:
        if len(rows := select_rank_responses(batch, part)):
            yield BatchPart(rows, batch.rows(rows).on(model), part, 1.0)
        elif len(part) and sharding.has_sharded_parts(model):
            yield BatchPart(part[:1], batch.rows(part[:1]).on(model), part, 0.0)


def iterate_parts_by_prompts(
    model: object, batch: Batch, count: int, *, dropout: bool
) -> Iterator[tuple[Batch, float]]:
    """The same of a batch that is cut into `count` parts between prompts: a part, and whether it counts (1 or 0).

    With `dropout` the loop's body draws a response's random numbers as one process would.
    """
    for whole in batch.parts(count):
        share = whole.share(model, padded=dropout and shared_draws.needs_shared_draws(model))
        rows = [] if share is None else whole.responses.list_dropout_row_kinds(share[1])
        with shared_draws.draw_for_all_rows(model, rows) if dropout else nullcontext():
            if share is not None:
                yield share[0], share[2]


def cut_into_micro_batches(completions: Completions, rows: Tensor, size: int) -> tuple[Tensor, ...]:
    """The responses `rows` (long) in parts of at most `size`, cut so that few tokens are padded or read twice.

    A prompt is read once in each part that has one of its responses. With short prompts it is best to group responses
    of similar length, with long prompts to group each prompt's responses. The function chooses the grouping with fewer
    tokens.
    """
    if not len(rows):
        return ()
    lengths = completions.mask.sum(1)
    owner = completions.owner

    def tokens(parts: tuple[Tensor, ...]) -> int:
        return sum(_count_tokens_read(completions, part) for part in parts)

    like = rows[lengths[rows].argsort(stable=True)].split(size)
    together = rows[owner[rows].argsort(stable=True)].split(size)
    return min(like, together, key=tokens)


def select_rank_responses(completions: Completions, rows: Tensor) -> Tensor:
    """Of the responses `rows` (long) those that this rank passes through a model; perhaps none.

    They are neighbours in `rows` or dealt out in turn, whichever gives the rank with most tokens fewer.
    """
    ranks = distributed.get_world_size()
    if ranks == 1:
        return rows
    neighbours = [rows[distributed.get_rank_slice(len(rows), number, ranks)] for number in range(ranks)]
    dealt = [rows[number::ranks] for number in range(ranks)]
    return min(neighbours, dealt, key=lambda some: max(_count_tokens_read(completions, part) for part in some))[
        distributed.get_rank()
    ]


def cut_into_micro_batches_if_needed(batch: Completions, rows: Tensor, size: int) -> tuple[Tensor, ...]:
    """The responses `rows` in parts of at most `size`."""
    return (rows,) if len(rows) <= size else cut_into_micro_batches(batch, rows, size)


@torch.no_grad()
def compute_token_values_in_parts(passed: Callable[[Completions], Tensor], batch: Completions, size: int) -> Tensor:
    """What `passed` gives for each token of the batch, on the CPU: (N, L), from parts of at most `size` responses."""
    values = torch.zeros(batch.mask.shape)
    for whole in cut_into_micro_batches_if_needed(batch, torch.arange(len(batch)), size):
        if not len(rows := select_rank_responses(batch, whole)):
            continue
        part = passed(batch.rows(rows) if len(rows) < len(batch) else batch).cpu()
        values[rows, : part.shape[1]] = part
    return distributed.all_reduce_sum(values)


def _count_tokens_read(completions: Completions, rows: Tensor) -> int:
    """The tokens, with padding, of a pass of these responses, in which each prompt is read once."""
    if not len(rows):
        return 0
    prompts = completions.owner[rows].unique()
    longest = completions.mask[rows].sum(1).max()
    longest_prompt = completions.prompt_mask[prompts].sum(1).max()
    return len(prompts) * int(longest_prompt) + len(rows) * int(longest)
