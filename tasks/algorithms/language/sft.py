"""Maximum likelihood: next-token cross-entropy over the tokens that a mask names.

Pretraining masks in every token, supervised fine-tuning the response and its end token only. The loss is a mean over
the tokens of the whole batch, so a long example weighs more than a short one (as in TRL and open-instruct).
"""

from collections.abc import Iterable, Iterator
from itertools import islice

import torch
from torch import Tensor

from tasks.algorithms.common import distributed, sharding, shared_draws
from tasks.algorithms.common.optimizer import METRICS as OPTIMIZER_METRICS
from tasks.algorithms.common.optimizer import Optimizer
from tasks.algorithms.language.causal_lm import CausalLM
from tasks.algorithms.language.lm_head import compute_chunked_logps, defer_large_head
from tasks.algorithms.language.sequences import SequenceBatch

METRICS = {
    "loss": "The mean negative log-likelihood of the batch's trained tokens, in nats.",
    "mean_token_accuracy": "The share of the batch's trained tokens that are the model's first choice, from 0 to 1.",
    **OPTIMIZER_METRICS,
}
HELD_OUT_METRICS = {
    "eval_loss": "The mean negative log-likelihood of all held-out tokens, in nats; lower is better.",
    "eval_mean_token_accuracy": "The share of the held-out tokens that are the model's first choice, from 0 to 1.",
}


def cross_entropy_and_accuracy(model: CausalLM, batch: SequenceBatch) -> tuple[Tensor, Tensor]:
    """Mean negative log-likelihood of the masked-in tokens, and the share of them that are the model's first choice.

    Token t + 1 is predicted at position t: logits (B, T - 1, V) against tokens (B, T - 1).
    """
    batch = batch.on(model)
    with defer_large_head(model, batch.tokens.numel()) as head:
        logits = model(**batch.inputs(), use_cache=False).logits
    wanted = batch.response[:, 1:]
    picked = logits[:, :-1][wanted]
    targets = batch.tokens[:, 1:][wanted]
    if head is None:
        picked = picked.float()
        loss = torch.nn.functional.cross_entropy(picked, targets)
        first = picked.argmax(dim=-1)
    else:  # `logits` are states (B, T, D)
        logps, first = compute_chunked_logps(head, picked, targets)
        loss = -logps.mean()
    return loss, (first == targets).float().mean()


def fit(
    model: CausalLM, batches: Iterable[SequenceBatch], optimizer: Optimizer, accumulate: int = 1
) -> Iterator[dict[str, float]]:
    """Train `model` in place, one step a batch, which is passed through it in `accumulate` parts.

    Yields a step's METRICS.
    """
    model.train()
    for batch in batches:
        rate = optimizer.learning_rate
        loss, accuracy = accumulate_gradients(model, batch, accumulate)
        norm = optimizer.step()
        yield {
            "loss": loss,
            "mean_token_accuracy": accuracy,
            "grad_norm": norm,
            "learning_rate": rate,
        }
    model.eval()


def accumulate_gradients(model: CausalLM, batch: SequenceBatch, parts: int) -> tuple[float, float]:
    """Add the gradient of the batch's loss, part by part; returns the loss and the accuracy of the whole batch.

    A part counts by its share of the batch's trained tokens, so that the sum is the gradient of one pass, not a mean of
    means. Of several ranks each passes its rows of each part through the model.
    """
    tokens = int(batch.response[:, 1:].sum())
    totals = {"loss": 0.0, "accuracy": 0.0}
    for part in batch.parts(parts):
        rank_part, rows, counted = _select_rank_rows(model, part)
        learned = int(rank_part.response[:, 1:].sum())
        share = counted * learned / max(1, tokens) if parts > 1 or distributed.get_world_size() > 1 else 1.0
        with shared_draws.draw_for_all_rows(model, [(rows, len(part.tokens))]):
            if not learned:
                continue  # a mean over no tokens is nan
            mean, hits = cross_entropy_and_accuracy(model, rank_part)
            (mean * share).backward()
        totals = {"loss": totals["loss"] + mean.item() * share, "accuracy": totals["accuracy"] + hits.item() * share}
    totals = distributed.sum_values_over_ranks(totals)
    return totals["loss"], totals["accuracy"]


def _select_rank_rows(model: CausalLM, part: SequenceBatch) -> tuple[SequenceBatch, Tensor, float]:
    """This rank's rows of a part of a batch, their numbers, and what they count: 1; all rows where it is alone.

    A rank that has no rows of it passes the first row where ranks divide the model, which counts 0.
    """
    if distributed.get_world_size() == 1:
        return part, torch.arange(len(part.tokens)), 1.0
    width = part.tokens.shape[1] if shared_draws.needs_shared_draws(model) else None
    rank_part, rows = part.share(width)
    if len(rows) or not sharding.has_sharded_parts(model):
        return rank_part, rows, 1.0
    return part.rows(torch.tensor([0]), part.tokens.shape[1]), torch.tensor([0]), 0.0


@torch.no_grad()
def measure_held_out_loss_and_accuracy(model: CausalLM, batches: Iterable[SequenceBatch]) -> dict[str, float]:
    """HELD_OUT_METRICS over all tokens of all batches, not means of batch means; ranks take the batches in turn."""
    model.eval()
    loss = accuracy = count = 0.0
    with sharding.hold_unsharded_model(model):
        for batch in islice(batches, distributed.get_rank(), None, distributed.get_world_size()):
            tokens = batch.response[:, 1:].sum().item()
            batch_loss, batch_accuracy = cross_entropy_and_accuracy(model, batch)
            loss = loss + batch_loss.item() * tokens
            accuracy = accuracy + batch_accuracy.item() * tokens
            count = count + tokens
    totals = distributed.sum_values_over_ranks({"loss": loss, "accuracy": accuracy, "count": count})
    return {
        "eval_loss": totals["loss"] / totals["count"],
        "eval_mean_token_accuracy": totals["accuracy"] / totals["count"],
    }
