"""Rewards of single steps by a process reward model, read where each step ends (arXiv:2211.14275, arXiv:2305.20050).

A step is a line of the response that is not blank. It ends at its line's last token, the one that holds the line break; the last step
ends at the response's last token, so that an end token belongs to it. The head has an output for each of CLASSES; what a step is worth
is the probability that it is not bad.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from tasks.algorithms.language.causal_lm import CausalLMWithBody, SequenceClassifier
from tasks.algorithms.language.completions import Completions, in_fp32, states

CLASSES = ("bad", "neutral", "good")  # in the order of the head's outputs
STEP_SCORES = ("minimum", "product", "last")  # what a response is worth by the worth of its steps
# In the config of a process reward model.
STEP_SCORE = "reward_step_score"
BREAKS = "reward_breaks"  # the tokens whose text holds a line break
BLANKS = "reward_blanks"  # the tokens that show nothing: white space, and special ones


def step_ends(completions: Completions, breaks: Sequence[int], blanks: Sequence[int]) -> Tensor:
    """True at the last token of each step: (N, L). `breaks` hold a line break, `blanks` nothing that is seen."""
    tokens, mask = completions.tokens, completions.mask
    shown = (mask & ~_among(tokens, blanks)).cumsum(dim=1)  # so many tokens up to here that are seen
    broken = mask & _among(tokens, breaks)
    by_breaks = torch.where(broken, shown, 0).cummax(dim=1).values
    before = torch.cat([torch.zeros_like(shown[:, :1]), by_breaks[:, :-1]], dim=1)
    last = torch.arange(mask.shape[1], device=mask.device) == mask.sum(dim=1, keepdim=True) - 1
    # A line behind which nothing more is seen is the last step, and ends with the response.
    return (broken & (shown > before) & (shown < shown[:, -1:])) | last


def _among(tokens: Tensor, known: Sequence[int]) -> Tensor:
    return torch.isin(tokens, torch.tensor(known, dtype=tokens.dtype, device=tokens.device))


def ends(model: CausalLMWithBody, completions: Completions) -> Tensor:
    """`step_ends` by the tokens that the model's config names: (N, L) on the model's device."""
    return step_ends(completions.on(model), getattr(model.config, BREAKS), getattr(model.config, BLANKS))


def logits_at(model: SequenceClassifier, completions: Completions, at: Tensor) -> Tensor:
    """What the head says of the tokens where `at` (N, L) is True, row by row: (M, outputs)."""
    hidden = states(model.base_model, completions)[:, 1:]
    return in_fp32(model.score, hidden[at.to(hidden.device)])


def step_scores(model: SequenceClassifier, completions: Completions) -> Tensor:
    """The probability that a step is not bad, at its last token, and 0 at all other tokens: (N, L)."""
    at = ends(model, completions)
    found = 1 - logits_at(model, completions, at).softmax(dim=-1)[:, 0]
    return found.new_zeros(at.shape).masked_scatter(at, found)


def combined(scores: Tensor, at: Tensor, how: str) -> Tensor:
    """What responses are worth (N,) by the worth of their steps (N, L), which end where `at` is True; `how` is one of STEP_SCORES."""
    if how == "last":
        last = torch.where(at, torch.arange(at.shape[1], device=at.device), -1).argmax(dim=1)
        return scores.gather(1, last.unsqueeze(1)).squeeze(1)
    whole = scores.masked_fill(~at, 1.0)
    return whole.amin(dim=1) if how == "minimum" else whole.prod(dim=1)
