"""Reward models of right and wrong answers, and of good and bad steps: cross-entropy of labels at tokens.

outcome  every token of an answer, or the last one, says whether the answer is right:
         -(r log p + (1 - r) log(1 - p)) with p the sigmoid of the model's one output (arXiv:2110.14168, section 4.2)
process  the token at which a step ends says whether it is bad, neutral or good, by a softmax over three outputs
         (arXiv:2305.20050). Where roll-outs say how often a step leads to the right answer, a share g, the labels are
         soft: (1 - g, 0, g)
         (Math-Shepherd, arXiv:2312.08935, eq. 4). A model that speaks by log-probabilities (step_rewards.py) has one
         output, which
         says as for outcomes whether the step is not bad

A batch's loss is a weighted sum over labelled tokens. An answer weighs the same however long it is; a step weighs the
same however many its answer has, as in TRL's PRMTrainer.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, log_softmax

from tasks.algorithms.common import distributed, sharding
from tasks.algorithms.common.optimizer import Optimizer
from tasks.algorithms.language.accumulation import iterate_parts_by_prompts
from tasks.algorithms.language.causal_lm import CausalLMWithBody
from tasks.algorithms.language.completions import Completions, select_rank_prompts
from tasks.algorithms.language.step_rewards import compute_logits_at, compute_negative_log_probs


@dataclass(frozen=True)
class Labelled:
    """N responses of up to L tokens, some of which have a label: a probability for each of the model's C outputs."""

    responses: Completions
    target: Tensor  # (N, L, C)
    weight: Tensor  # (N, L) the token's share of the whole batch's loss; 0 without a label
    judged: Tensor  # (N, L) True at the labels that count for accuracy: the ends of steps, or of answers

    @property
    def at(self) -> Tensor:
        """True at tokens with a label: (N, L)."""
        return self.weight > 0

    def rows(self, index: Tensor, padded: bool = False) -> "Labelled":
        """The responses at `index` (long), padded no further than needed, or else as here."""
        responses = self.responses.rows(index, padded)
        longest = responses.tokens.shape[1]
        kept = (part[index, :longest] for part in (self.target, self.weight, self.judged))
        return Labelled(responses, *kept)

    def parts(self, count: int) -> Iterator["Labelled"]:
        """The responses in `count` parts of nearly equal numbers of prompts, or in fewer where there are fewer
        prompts.
        """
        if count == 1:
            yield self
            return
        for prompts in self.responses.owner.unique().tensor_split(count):
            if len(prompts):
                yield self.rows(_select_rows_of_prompts(self.responses, prompts))

    def share(self, model: object, padded: bool = False) -> "tuple[Labelled, Tensor, float] | None":
        """The responses to this rank's share of the prompts, their rows, and what they count: 1, or 0 for a stand-in;
        perhaps none.
        """
        if distributed.get_world_size() == 1:
            return self, torch.arange(len(self.responses)), 1.0
        prompts, counted = select_rank_prompts(self.responses.owner, model)
        rows = _select_rows_of_prompts(self.responses, prompts)
        return (self.rows(rows, padded), rows, counted) if len(rows) else None


def _select_rows_of_prompts(responses: Completions, prompts: Tensor) -> Tensor:
    return torch.isin(responses.owner, prompts).nonzero().flatten()


def label_outcomes(responses: Completions, right: Sequence[bool], tokens: Literal["all", "last"]) -> Labelled:
    """Answers that are right or wrong (N,), which each of their tokens says, or the last one alone.

    An answer weighs 1/N.
    """
    labelled = responses.mask if tokens == "all" else responses.last
    weight = labelled / labelled.sum(dim=1, keepdim=True) / len(responses)
    label = torch.tensor(right).float()
    return Labelled(responses, label[:, None, None].expand(*weight.shape, 1), weight, responses.last)


def label_steps(
    responses: Completions, ends: Sequence[Sequence[int]], targets: Sequence[Sequence[Sequence[float]]]
) -> Labelled:
    """Answers in steps: of each the places where its steps end, and there a probability for each of three classes, or
    that of not being bad.

    All steps of the batch weigh the same.
    """
    target = torch.zeros(*responses.mask.shape, len(targets[0][0]))
    weight = torch.zeros(responses.mask.shape)
    total = sum(map(len, ends))
    for row, (positions, labels) in enumerate(zip(ends, targets, strict=True)):
        target[row, list(positions)] = torch.tensor(labels, dtype=torch.float32)
        weight[row, list(positions)] = 1 / total
    return Labelled(responses, target, weight, weight > 0)


def compute_label_losses(logits: Tensor, target: Tensor) -> Tensor:
    """The cross-entropy of each token (M,) from what the model says of it (M, C) and its label (M, C)."""
    if logits.shape[1] == 1:
        return binary_cross_entropy_with_logits(logits, target, reduction="none").squeeze(1)
    return -(target * log_softmax(logits, dim=1)).sum(dim=1)


def compute_right_prediction_mask(logits: Tensor, target: Tensor) -> Tensor:
    """Whether the label that the model holds for likeliest is the right one: (M,) from (M, C) and (M, C)."""
    if logits.shape[1] == 1:
        return (logits.squeeze(1) > 0) == (target.squeeze(1) > 0.5)
    return logits.argmax(dim=1) == target.argmax(dim=1)


def fit(
    model: CausalLMWithBody,
    batches: Iterable[Labelled],
    optimizer: Optimizer,
    accumulate: int = 1,
    likelihood: float = 0.0,
) -> Iterator[dict[str, float]]:
    """Train `model` in place. A batch is passed through in `accumulate` parts. Yields a step's loss, accuracy and
    grad_norm.

    Accuracy is that of steps, or of answers by their last token. `likelihood` is the weight of the mean negative
    log-likelihood a token of right answers, or of steps that are not bad, for a model that speaks by log-probabilities:
    it keeps the model near its start.
    """
    model.train()
    device = next(model.parameters()).device
    for batch in batches:
        total = 0.0
        hits = [torch.zeros(0, dtype=torch.bool, device=device)]
        for part, counts in iterate_parts_by_prompts(model, batch, accumulate, dropout=True):
            at = part.at
            logits = compute_logits_at(model, part.responses, at)
            target = part.target[at].to(device)
            weight = part.weight[at].to(device)
            costs = compute_label_losses(logits, target)
            if likelihood:
                costs = costs + likelihood * target.squeeze(1) * compute_negative_log_probs(model, logits)
            loss = counts * (weight * costs).sum()
            loss.backward()
            total += loss.item()
            if counts:
                judged = part.judged[at].to(device)
                hits.append(compute_right_prediction_mask(logits.detach(), target)[judged])
        norm = optimizer.step()
        all_hits = distributed.gather_rows(torch.cat(hits))
        yield {
            "loss": distributed.sum_values_over_ranks({"loss": total})["loss"],
            "accuracy": all_hits.float().mean().item(),
            "grad_norm": norm,
        }
    model.eval()


@torch.no_grad()
def predict_label_logits(model: CausalLMWithBody, batches: Iterable[Labelled]) -> Tensor:
    """What the model says of every labelled token of all batches, in order: (M, C), on the CPU. Ranks take the batches
    in turn.
    """
    model.eval()
    with sharding.hold_unsharded_model(model):
        batch_logits = [
            compute_logits_at(model, batch.responses, batch.at).cpu()
            if distributed.is_batch_of_this_rank(number)
            else torch.zeros(int(batch.at.sum()), batch.target.shape[2])
            for number, batch in enumerate(batches)
        ]
    return distributed.all_reduce_sum(torch.cat(batch_logits))
