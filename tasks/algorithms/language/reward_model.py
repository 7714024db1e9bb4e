"""A reward model from preferences: Bradley-Terry likelihood of pairs (InstructGPT, arXiv:2203.02155, eq. 1).

A response is scored in one of two ways. A model with a head `score` reads the score from the state of the last real
token, which is found from lengths. A language model whose config has `reward_beta` scores by beta times the mean
log-probability of the response's tokens (SimPO's reward, arXiv:2405.14734). That compares each token with what the
model expected; a head on the policy's last states has no layer left for such a comparison. A model of either kind that
was trained on right and wrong answers, or on steps, (`reward_objective`, labelled_reward_model.py) scores by a
probability.

All pairs of one prompt stand in one batch and weigh 1 / (their number) each, so that a prompt with many pairs counts
no more than one with few. So do all pairs of one ranking of K responses, which weigh 1 / C(K, 2).
"""

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from tasks.algorithms.common import distributed, sharding
from tasks.algorithms.common.optimizer import METRICS as OPTIMIZER_METRICS
from tasks.algorithms.common.optimizer import Optimizer
from tasks.algorithms.language import step_rewards
from tasks.algorithms.language.accumulation import iterate_parts_by_prompts
from tasks.algorithms.language.causal_lm import CausalLMWithBody, SequenceClassifier
from tasks.algorithms.language.completions import (
    Completions,
    apply_head_in_fp32,
    compute_response_states,
    compute_token_logps,
)
from tasks.algorithms.language.pairs import TIED, Pairs
from tasks.algorithms.language.step_rewards import get_reward_beta, has_score_head

OBJECTIVE = "reward_objective"  # in the config of a model that was trained on solutions: outcome | process
METRICS = {
    "loss": "The mean of -log sigmoid(r_w - r_l - margin) over the batch's pairs, with the terms that centering "
    "and likelihood add.",
    "accuracy": "The share of the batch's pairs whose chosen response scores higher, from 0 to 1; chance is 0.5, "
    "and so much a tied pair counts. Of outcome and process: the share of the answers, by their last "
    "token, or of the steps whose label is the likeliest.",
    "margin": "The mean of r_w - r_l, the chosen response's score minus the rejected one's; a tied pair counts 0.",
    "grad_norm": OPTIMIZER_METRICS["grad_norm"],
}


def initialise_score_head(model: SequenceClassifier, generator: torch.Generator) -> None:
    """Draw the scalar head with standard deviation 1 / sqrt(width + 1) (arXiv:2009.01325, as open-instruct does)."""
    weight = model.score.weight
    with torch.no_grad():
        weight.copy_(torch.randn(weight.shape, generator=generator) / math.sqrt(weight.shape[1] + 1))


def score_responses(model: CausalLMWithBody, responses: Completions) -> Tensor:
    """The scalar score of each response: (N,). A head reads it at the last real token, the end token where there is
    one.

    An outcome reward model's is the probability that the response is right; a process reward model's is that of its
    steps not being bad, combined as its config says.
    """
    objective = getattr(model.config, OBJECTIVE, None)
    if objective == "process":
        at = step_rewards.find_model_step_ends(model, responses)
        how = getattr(model.config, step_rewards.STEP_SCORE)
        return step_rewards.combine_step_scores(step_rewards.score_steps(model, responses), at, how)
    if objective == "outcome":
        return step_rewards.compute_logits_at(model, responses, responses.last).squeeze(1).sigmoid()
    if has_score_head(model):
        return _score_at_last_token(model, responses)
    logps = compute_token_logps(model, responses)
    return get_reward_beta(model) * logps.sum(dim=1) / responses.mask.sum(dim=1).to(logps.device)


def _score_at_last_token(model: SequenceClassifier, responses: Completions) -> Tensor:
    hidden = compute_response_states(model.base_model, responses)
    ends = responses.mask.sum(dim=1).to(hidden.device)
    return apply_head_in_fp32(model.score, hidden[torch.arange(len(ends), device=ends.device), ends]).squeeze(-1)


def pair_loss(
    chosen: Tensor,
    rejected: Tensor,
    weight: Tensor,
    margin: Tensor,
    centering: float,
    shares: tuple[float, float] = (1.0, 1.0),
    tied: Tensor | None = None,
) -> Tensor:
    """-log sigmoid(r_w - r_l - m), a weighted mean over P pairs, plus `centering` * mean((r_w + r_l)^2).

    All tensors are (P,). `margin` (arXiv:2307.09288, eq. 2) is the difference asked of a pair; 0 asks for none. A pair
    that is `tied` asks for equal scores by -(log sigmoid(d) + log sigmoid(-d)) / 2. For a part of a batch, `shares` are
    its shares of the batch's weight and of its pairs: the parts' losses add up to the batch's.
    """
    likelihood = logsigmoid(chosen - rejected - margin)
    if tied is not None and tied.any():
        likelihood = torch.where(tied, (likelihood + logsigmoid(rejected - chosen)) / 2, likelihood)
    mean = -(weight * likelihood).sum() / weight.sum()
    return shares[0] * mean + shares[1] * centering * (chosen + rejected).square().mean()


def fit(
    model: CausalLMWithBody,
    batches: Iterable[Pairs],
    optimizer: Optimizer,
    *,
    margins: Sequence[float],
    centering: float,
    likelihood: float,
    accumulate: int = 1,
) -> Iterator[dict[str, float]]:
    """Train `model` in place; `margins` are asked of pairs by their level, the least first. A batch is passed through
    in `accumulate` parts.

    `likelihood` is the weight of the chosen responses' mean negative log-likelihood a token, for a model that scores by
    log-probability. Preferences fix only the difference between two answers; without this term both become unlikely.
    Yang et al. 2024 (arXiv:2406.10216) use such a term for reward models that keep their language head.

    Yields a step's metrics (METRICS).
    """
    model.train()
    device = next(model.parameters()).device
    by_level = torch.tensor([*margins, 0.0, 0.0], device=device)  # the last two for NO_LEVEL and TIED
    nothing = torch.zeros(0, device=device)
    for pairs in batches:
        total = 0.0
        part_metrics = [{"accuracy": nothing, "margin": nothing}]
        for part, counts in iterate_parts_by_prompts(model, pairs, accumulate, dropout=True):
            scores = score_responses(model, part.responses)
            chosen = scores[part.chosen]
            rejected = scores[part.rejected]
            weight = part.weight.to(scores.device)
            level = part.level.to(scores.device)
            of_weight = part.weight.sum() / pairs.weight.sum()
            of_pairs = len(part.chosen) / len(pairs.chosen)
            shares = of_weight.item() * counts, of_pairs * counts
            tied = level == TIED
            loss = pair_loss(chosen, rejected, weight, by_level[level], centering, shares, tied)
            if likelihood:
                kept = weight.masked_fill(tied, 0.0)
                loss = loss - shares[0] * likelihood * (kept * chosen).sum() / weight.sum() / get_reward_beta(model)
            loss.backward()
            total += loss.item()
            if counts:
                part_metrics.append(_compute_pair_metrics((chosen - rejected).detach(), tied))
        norm = optimizer.step()
        columns = distributed.gather_columns(
            {name: torch.cat([part[name] for part in part_metrics]) for name in part_metrics[0]}
        )
        yield {
            "loss": distributed.sum_values_over_ranks({"loss": total})["loss"],
            **{name: values.mean().item() for name, values in columns.items()},
            "grad_norm": norm,
        }
    model.eval()


def _compute_pair_metrics(difference: Tensor, tied: Tensor) -> dict[str, Tensor]:
    """Of each pair (P,): whether the chosen response scores higher, and by how much."""
    won = (difference > 0).float()
    return {"accuracy": won.masked_fill(tied, 0.5), "margin": difference.masked_fill(tied, 0.0)}


@torch.no_grad()
def score_batches(model: CausalLMWithBody, batches: Iterable[Completions]) -> Tensor:
    """The score of every response of all batches, in order: (N,), on the CPU. Ranks take the batches in turn."""
    model.eval()
    with sharding.hold_unsharded_model(model):
        batch_scores = [
            score_responses(model, responses).cpu()
            if distributed.is_batch_of_this_rank(number)
            else torch.zeros(len(responses))
            for number, responses in enumerate(batches)
        ]
    return distributed.all_reduce_sum(torch.cat(batch_scores))
