"""Direct preference optimisation: fit the policy to pairs without a reward model (arXiv:2305.18290, eq. 7), and its
kin.

A response is scored by log pi - log pi_ref, and beta times that is its implicit reward. Only the difference of a pair's
two scores is trained, so the chosen log-probability may fall with the rejected one: both are logged.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from tasks.algorithms.common import distributed, sharding
from tasks.algorithms.common.optimizer import METRICS as OPTIMIZER_METRICS
from tasks.algorithms.common.optimizer import Optimizer
from tasks.algorithms.language.accumulation import iterate_parts_by_prompts
from tasks.algorithms.language.causal_lm import CausalLM
from tasks.algorithms.language.completions import Completions, compute_response_logps
from tasks.algorithms.language.pairs import Pairs

Loss = Literal["sigmoid", "ipo", "simpo"]
METRICS = {
    "loss": "The mean of the objective over the batch's pairs, with the term that nll adds.",
    "rewards/chosen": "The mean implicit reward of the chosen responses, beta times their score; DPO's score is "
    "log pi - log pi_ref.",
    "rewards/rejected": "The mean implicit reward of the rejected responses.",
    "rewards/margins": "The mean difference of implicit reward between the chosen and the rejected response of a "
    "pair; it should rise.",
    "rewards/accuracies": "The share of the pairs whose chosen response has the higher implicit reward, from 0 to 1.",
    "logps/chosen": "The mean log-probability of a chosen response, summed over its tokens, in nats.",
    "logps/rejected": "The mean log-probability of a rejected response, summed over its tokens, in nats.",
    "nll": "The mean negative log-likelihood of a chosen response, a mean over its tokens, in nats.",
    "grad_norm": OPTIMIZER_METRICS["grad_norm"],
    "logps/chosen_change": "The mean of log pi - log pi_ref of the chosen responses, in nats; below 0 they have "
    "become less likely. SimPO has no reference and does not log it.",
}

BY_PAIR = [name for name in METRICS if name not in ("loss", "grad_norm")]


@dataclass(frozen=True)
class MarginLoss:
    """The loss as a function of d, the score of the chosen response minus that of the rejected one.

    sigmoid  -(1 - e) log sigmoid(beta d) - e log sigmoid(-beta d), e the label smoothing: DPO, and conservative DPO
             where a share e of the labels is taken to be wrong (Mitchell 2023, ericmitchell.ai/cdpo.pdf)
    ipo      (d - 1 / (2 beta))^2: a difference to reach and not to exceed (arXiv:2310.12036, eq. 17)
    simpo    -log sigmoid(beta d - gamma), with no reference in the scores (arXiv:2405.14734, eq. 6)

    To each `nll` adds -log pi(chosen) / |chosen|, |chosen| being its number of tokens (arXiv:2404.19733, eq. 1;
    arXiv:2405.16436).
    """

    loss: Loss
    beta: float
    label_smoothing: float
    gamma: float
    length_normalised: bool  # scores are means over response tokens, as in SimPO, and in IPO according to its authors
    nll: float  # weight of the chosen response's negative log-likelihood a token

    @property
    def needs_reference(self) -> bool:
        """Whether log pi_ref enters the scores."""
        return self.loss != "simpo"

    def scores(self, logps: Tensor, reference: Tensor | None, lengths: Tensor) -> Tensor:
        """The score of each response (N,) from log pi (N,), log pi_ref (N,) and the number of its tokens (N,)."""
        change = logps if reference is None else logps - reference
        return change / lengths if self.length_normalised else change

    def losses(self, difference: Tensor) -> Tensor:
        """The loss of each pair (P,) from d (P,)."""
        if self.loss == "ipo":
            return (difference - 1 / (2 * self.beta)).square()
        margin = self.beta * difference
        if self.loss == "simpo":
            return -logsigmoid(margin - self.gamma)
        return -(1 - self.label_smoothing) * logsigmoid(margin) - self.label_smoothing * logsigmoid(-margin)


@torch.no_grad()
def compute_reference_logps(model: CausalLM, batches: Iterable[Completions]) -> Tensor:
    """log pi_ref of every response, in order: (N,). Ranks take the batches in turn."""
    model.eval()
    device = next(model.parameters()).device
    with sharding.hold_unsharded_model(model):
        logps = [
            compute_response_logps(model, batch)
            if distributed.is_batch_of_this_rank(number)
            else torch.zeros(len(batch), device=device)
            for number, batch in enumerate(batches)
        ]
    return distributed.all_reduce_sum(torch.cat(logps))


def fit(
    model: CausalLM,
    batches: Iterable[Pairs],
    optimizer: Optimizer,
    *,
    reference: Tensor | None,
    objective: MarginLoss,
    accumulate: int = 1,
) -> Iterator[dict[str, float]]:
    """Train `model` in place, dropout off; a batch is passed through it in `accumulate` parts.

    `reference` (M,) has log pi_ref of every response of the whole set; None where the objective needs none. Yields a
    step's metrics (METRICS).
    """
    model.eval()
    names = [name for name in BY_PAIR if reference is not None or name != "logps/chosen_change"]
    nothing = torch.zeros(0, device=next(model.parameters()).device)
    for pairs in batches:
        loss = 0.0
        part_metrics = [dict.fromkeys(names, nothing)]
        for part, counts in iterate_parts_by_prompts(model, pairs, accumulate, dropout=False):
            share = counts * len(part.chosen) / len(pairs.chosen)
            portion, values = _add_gradient(model, part, share, reference, objective)
            loss += portion
            if counts:
                part_metrics.append(values)
        norm = optimizer.step()
        values = distributed.gather_columns({name: torch.cat([part[name] for part in part_metrics]) for name in names})
        loss = distributed.sum_values_over_ranks({"loss": loss})["loss"]
        row = {"loss": loss, **{name: column.mean().item() for name, column in values.items()}, "grad_norm": norm}
        yield {name: row[name] for name in METRICS if name in row}


def _add_gradient(
    model: CausalLM, pairs: Pairs, share: float, reference: Tensor | None, objective: MarginLoss
) -> tuple[float, dict[str, Tensor]]:
    """Add the gradient of a part of a batch with this share of its pairs; its share of the loss, and metrics by pair
    (P,).
    """
    logps = compute_response_logps(model, pairs.responses)
    ref_logps = None if reference is None else reference[pairs.index]
    lengths = pairs.responses.mask.sum(dim=1).to(logps.device)
    scores = objective.scores(logps, ref_logps, lengths)
    losses = objective.losses(scores[pairs.chosen] - scores[pairs.rejected])
    nll = -(logps / lengths)[pairs.chosen]
    if objective.nll:
        losses = losses + objective.nll * nll
    loss = losses.mean() * share
    loss.backward()
    rewards = objective.beta * scores.detach()
    logps = logps.detach()
    chosen = rewards[pairs.chosen]
    rejected = rewards[pairs.rejected]
    columns = {
        "rewards/chosen": chosen,
        "rewards/rejected": rejected,
        "rewards/margins": chosen - rejected,
        "rewards/accuracies": (chosen > rejected).float(),
        "logps/chosen": logps[pairs.chosen],
        "logps/rejected": logps[pairs.rejected],
        "nll": nll.detach(),
    }
    if ref_logps is not None:
        columns["logps/chosen_change"] = (logps - ref_logps)[pairs.chosen]
    return loss.item(), columns
