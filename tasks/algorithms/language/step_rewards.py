"""Rewards of single steps by a process reward model, read where each step ends (arXiv:2211.14275, arXiv:2305.20050).

A step is a line of the response that is not blank. It ends at its line's last token, the one that holds the line break;
the last step ends at the response's last token, so that an end token belongs to it. What a step is worth is the
probability that it is not bad. A head has an output for each of CLASSES. A language model whose config has BETA has
one, beta * (m + threshold), the log-odds of not being bad, with m the mean log-probability of the step's own tokens.
"""

from collections.abc import Sequence
from typing import TypeGuard

import torch
from torch import Tensor

from tasks.algorithms.language.causal_lm import CausalLMWithBody, SequenceClassifier
from tasks.algorithms.language.completions import (
    Completions,
    apply_head_in_fp32,
    compute_response_states,
    compute_token_logps,
)

CLASSES = ("bad", "neutral", "good")  # in the order of the head's outputs
STEP_SCORES = ("minimum", "product", "last")  # what a response is worth by the worth of its steps
# In the config of a language model that is a reward model: the factor on a mean log-probability.
BETA = "reward_beta"
# Besides, where it was trained on solutions: the mean negative log-probability at which right and wrong are equally
# likely.
THRESHOLD = "reward_threshold"
# In the config of a process reward model.
STEP_SCORE = "reward_step_score"
BREAKS = "reward_breaks"  # the tokens whose text holds a line break
BLANKS = "reward_blanks"  # the tokens that show nothing: white space, and special ones


def find_step_ends(completions: Completions, breaks: Sequence[int], blanks: Sequence[int]) -> Tensor:
    """True at the last token of each step: (N, L). `breaks` hold a line break, `blanks` nothing that is seen."""
    tokens = completions.tokens
    mask = completions.mask
    shown = (mask & ~_mask_token_ids(tokens, blanks)).cumsum(dim=1)  # so many tokens up to here that are seen
    broken = mask & _mask_token_ids(tokens, breaks)
    by_breaks = torch.where(broken, shown, 0).cummax(dim=1).values
    before = torch.cat([torch.zeros_like(shown[:, :1]), by_breaks[:, :-1]], dim=1)
    # A line behind which nothing more is seen is the last step, and ends with the response.
    return (broken & (shown > before) & (shown < shown[:, -1:])) | completions.last


def _mask_token_ids(tokens: Tensor, token_ids: Sequence[int]) -> Tensor:
    return torch.isin(tokens, torch.tensor(token_ids, dtype=tokens.dtype, device=tokens.device))


def find_model_step_ends(model: CausalLMWithBody, completions: Completions) -> Tensor:
    """`find_step_ends` by the tokens that the model's config names: (N, L) on the model's device."""
    return find_step_ends(completions.on(model), getattr(model.config, BREAKS), getattr(model.config, BLANKS))


def get_reward_beta(model: CausalLMWithBody) -> float:
    """The factor on the mean log-probability; 0 for a model with a head."""
    beta: float = getattr(model.config, BETA, 0.0)
    return beta


def has_score_head(model: CausalLMWithBody) -> TypeGuard[SequenceClassifier]:
    """Whether the model scores by a head, and not by log-probabilities."""
    return not get_reward_beta(model)


def compute_logits_at(model: CausalLMWithBody, completions: Completions, at: Tensor) -> Tensor:
    """What the model says of the tokens where `at` (N, L) is True, row by row: (M, outputs).

    By log-probabilities it speaks of all tokens behind the place before, or of those from the response's beginning.
    """
    if has_score_head(model):
        hidden = compute_response_states(model.base_model, completions)[:, 1:]
        return apply_head_in_fp32(model.score, hidden[at.to(hidden.device)])
    logps = compute_token_logps(model, completions)
    return (
        get_reward_beta(model) * (compute_span_means(logps, at.to(logps.device)) + _get_reward_threshold(model))
    ).unsqueeze(1)


def compute_negative_log_probs(model: CausalLMWithBody, logits: Tensor) -> Tensor:
    """The mean negative log-probability of a token (M,) by which the model says `logits` (M, 1)."""
    return _get_reward_threshold(model) - logits.squeeze(1) / get_reward_beta(model)


def _get_reward_threshold(model: CausalLMWithBody) -> float:
    threshold: float = getattr(model.config, THRESHOLD)
    return threshold


def compute_span_means(values: Tensor, at: Tensor) -> Tensor:
    """The mean of `values` (N, L) over each span of tokens that ends where `at` (N, L) is True, row by row: (M,)."""
    count = at.sum(dim=1, keepdim=True)
    number = torch.arange(int(count.max()), device=at.device)
    within = (at.cumsum(dim=1) - at.long()).unsqueeze(1) == number[:, None]  # (N, spans, L)
    means = (within * values.unsqueeze(1)).sum(dim=2) / within.sum(dim=2).clamp(min=1)
    return means[number < count]


def compute_class_probabilities(logits: Tensor) -> Tensor:
    """The probabilities of CLASSES (M, 3) by what a model says of steps: of all three, or of not being bad (M, 1)."""
    if logits.shape[1] == 1:
        return torch.cat([(-logits).sigmoid(), torch.zeros_like(logits), logits.sigmoid()], dim=1)
    return logits.softmax(dim=1)


def score_steps(model: CausalLMWithBody, completions: Completions) -> Tensor:
    """The probability that a step is not bad, at its last token, and 0 at all other tokens: (N, L)."""
    at = find_model_step_ends(model, completions)
    probability = 1 - compute_class_probabilities(compute_logits_at(model, completions, at))[:, 0]
    return probability.new_zeros(at.shape).masked_scatter(at, probability)


def combine_step_scores(scores: Tensor, at: Tensor, how: str) -> Tensor:
    """What responses are worth (N,) by the worth of their steps (N, L), which end where `at` is True; `how` is one of
    STEP_SCORES.
    """
    if how == "last":
        last = torch.where(at, torch.arange(at.shape[1], device=at.device), -1).argmax(dim=1)
        return scores.gather(1, last.unsqueeze(1)).squeeze(1)
    whole = scores.masked_fill(~at, 1.0)
    return whole.amin(dim=1) if how == "minimum" else whole.prod(dim=1)
