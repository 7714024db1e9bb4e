"""Maximum likelihood: next-token cross-entropy over the tokens that a mask names.

Pretraining masks in every token, supervised fine-tuning the response and its end token only. The loss is a mean over
the tokens of the whole batch, so a long example weighs more than a short one (as in TRL and open-instruct).
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from tasks.algorithms.common.optimizer import METRICS as OPTIMIZER_METRICS
from tasks.algorithms.common.optimizer import Optimizer
from tasks.algorithms.language.causal_lm import CausalLM
from tasks.algorithms.language.lm_head import chunked_logps, deferred_head
from tasks.algorithms.language.sequences import Batch

METRICS = {
    "loss": "The mean negative log-likelihood of the batch's trained tokens, in nats.",
    "mean_token_accuracy": "The share of the batch's trained tokens that are the model's first choice, from 0 to 1.",
    **OPTIMIZER_METRICS,
}
HELD_OUT_METRICS = {
    "eval_loss": "The mean negative log-likelihood of all held-out tokens, in nats; lower is better.",
    "eval_mean_token_accuracy": "The share of the held-out tokens that are the model's first choice, from 0 to 1.",
}


def cross_entropy(model: CausalLM, batch: Batch) -> tuple[Tensor, Tensor]:
    """Mean negative log-likelihood of the masked-in tokens, and the share of them that are the model's first choice.

    Token t + 1 is predicted at position t: logits (B, T - 1, V) against tokens (B, T - 1).
    """
    batch = batch.on(model)
    with deferred_head(model, batch.tokens.numel()) as head:
        logits = model(**batch.inputs(), use_cache=False).logits
    wanted = batch.response[:, 1:]
    picked, targets = logits[:, :-1][wanted], batch.tokens[:, 1:][wanted]
    if head is None:
        picked = picked.float()
        loss, first = torch.nn.functional.cross_entropy(picked, targets), picked.argmax(dim=-1)
    else:  # `logits` are states (B, T, D)
        logps, first = chunked_logps(head, picked, targets)
        loss = -logps.mean()
    return loss, (first == targets).float().mean()


def fit(
    model: CausalLM, batches: Iterable[Batch], optimizer: Optimizer, accumulate: int = 1
) -> Iterator[dict[str, float]]:
    """Train `model` in place, one step a batch, which is passed through it in `accumulate` parts. Yields a step's METRICS."""
    model.train()
    for batch in batches:
        rate = optimizer.learning_rate
        loss, accuracy = add_gradient(model, batch, accumulate)
        norm = optimizer.step()
        yield {
            "loss": loss,
            "mean_token_accuracy": accuracy,
            "grad_norm": norm,
            "learning_rate": rate,
        }
    model.eval()


def add_gradient(model: CausalLM, batch: Batch, parts: int) -> tuple[float, float]:
    """Add the gradient of the batch's loss, part by part; returns the loss and the accuracy of the whole batch.

    A part counts by its share of the batch's trained tokens, so that the sum is the gradient of one pass, not a mean of means.
    """
    tokens = int(batch.response[:, 1:].sum())
    loss = accuracy = 0.0
    for part in batch.parts(parts):
        share = int(part.response[:, 1:].sum()) / max(1, tokens) if parts > 1 else 1.0
        if not share:
            continue  # a mean over no tokens is nan
        mean, hits = cross_entropy(model, part)
        (mean * share).backward()
        loss, accuracy = loss + mean.item() * share, accuracy + hits.item() * share
    return loss, accuracy


@torch.no_grad()
def evaluate(model: CausalLM, batches: Iterable[Batch]) -> dict[str, float]:
    """HELD_OUT_METRICS over all tokens of all batches, not means of batch means."""
    model.eval()
    loss = accuracy = count = 0.0
    for batch in batches:
        tokens = batch.response[:, 1:].sum().item()
        batch_loss, batch_accuracy = cross_entropy(model, batch)
        loss, accuracy, count = (
            loss + batch_loss.item() * tokens,
            accuracy + batch_accuracy.item() * tokens,
            count + tokens,
        )
    return {"eval_loss": loss / count, "eval_mean_token_accuracy": accuracy / count}
