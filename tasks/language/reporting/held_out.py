"""What a policy thinks of texts that others wrote: reference responses, and preference pairs.

No answer of its own is needed.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tasks.algorithms.language.accumulation import cut_into_micro_batches
from tasks.algorithms.language.causal_lm import PretrainedCausalLM, PretrainedModel
from tasks.algorithms.language.completions import compute_token_logps, make_completions
from tasks.common.tokenizers import Tokenizer
from tasks.language.data import chat
from tasks.language.data.comparisons import ComparisonSet

AT_ONCE = 32  # responses in one pass; changes speed only


@torch.no_grad()
def compute_reference_losses(
    model: PretrainedCausalLM, tokenizer: Tokenizer, prompts: Sequence[Sequence[int]], references: Sequence[str]
) -> NDArray[np.float64]:
    """Mean negative log-likelihood a token, in nats, of each reference response and its end token: (N,).

    Of a response that goes beyond the model's positions the tokens within them count.
    """
    encoded = [chat.encode_response(tokenizer, text) for text in references]
    if (room := chat.get_max_positions(model)) is not None:
        encoded = [response[: room - len(prompt)] for prompt, response in zip(prompts, encoded, strict=True)]
    whole = make_completions(prompts, range(len(prompts)), encoded, tokenizer.pad_token_id)
    losses = torch.zeros(len(whole), dtype=torch.float64)
    for rows in cut_into_micro_batches(whole, torch.arange(len(whole)), AT_ONCE):
        part = whole.rows(rows)
        losses[rows] = -(compute_token_logps(model, part).sum(1).double().cpu() / part.mask.sum(1))
    return losses.numpy()


@torch.no_grad()
def compute_pair_preferences(
    policy: PretrainedCausalLM, reference: PretrainedModel | None, pairs: ComparisonSet
) -> dict[str, NDArray[np.float64]]:
    """For each held-out pair whether the policy prefers the chosen response: 1, 0, or 1/2 for a tie; (P,) each.

    `pair_likelihood` compares log-probabilities a token; `pair_accuracy` DPO's implicit rewards, the changes of the
    log-probabilities against the reference (arXiv:2305.18290, eq. 5), which are all 0 for the reference itself.
    """
    batches = list(pairs.responses(AT_ONCE))
    sums = torch.cat([compute_token_logps(policy, batch).sum(1).double().cpu() for batch in batches])
    lengths = torch.cat([batch.mask.sum(1) for batch in batches])
    outcomes = {"pair_likelihood": _compute_win_values(pairs.margins(sums / lengths))}
    if reference is not None:
        before = torch.cat([compute_token_logps(reference, batch).sum(1).double().cpu() for batch in batches])
        outcomes["pair_accuracy"] = _compute_win_values(pairs.margins(sums - before))
    return outcomes


def _compute_win_values(margins: torch.Tensor) -> NDArray[np.float64]:
    won: NDArray[np.float64] = ((margins.sign() + 1) / 2).numpy()
    return won
