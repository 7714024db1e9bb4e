"""How well a reward model knows what it knows: calibration, and good answers against corrupted ones."""

from collections.abc import Iterable

import torch
from torch import Tensor

from tasks.algorithms.common import distributed, sharding
from tasks.algorithms.language.causal_lm import CausalLMWithBody
from tasks.algorithms.language.degenerate import KINDS, corrupt_answers, select_best_answers
from tasks.algorithms.language.pairs import Pairs
from tasks.algorithms.language.reward_model import score_responses

CALIBRATION = {
    "predicted": "The mean probability with which the model says that a pair's higher-scored response is the "
    "chosen one; a row of calibration.csv is a bin of equally many held-out pairs.",
    "observed": "The share of the bin's pairs whose higher-scored response is the chosen one; for a calibrated "
    "model it equals `predicted`.",
    "pairs": "The number of pairs in the bin.",
}


@torch.no_grad()
def measure_wins_over_corruptions(
    model: CausalLMWithBody, batches: Iterable[Pairs], vocabulary: int, generator: torch.Generator
) -> dict[str, float]:
    """The share of prompts whose best answer scores above a corruption of that answer, by kind of corruption."""
    model.eval()
    won: dict[str, list[Tensor]] = {kind: [] for kind in KINDS}
    with sharding.hold_unsharded_model(model):
        for number, pairs in enumerate(batches):
            best = select_best_answers(pairs)
            good = score_responses(model, pairs.responses)[best] if distributed.is_batch_of_this_rank(number) else None
            for kind in KINDS:
                made = corrupt_answers(pairs.responses, best, [kind] * len(best), vocabulary, generator)
                better = torch.zeros(len(best)) if good is None else good > score_responses(model, made)
                won[kind].append(better.double().cpu())
    return {kind: distributed.all_reduce_sum(torch.cat(values)).mean().item() for kind, values in won.items()}


def compute_calibration_bins(differences: Tensor, bins: int) -> list[dict[str, float]]:
    """Predicted against observed preference (CALIBRATION), in `bins` of equal count.

    Each pair (margin d) is seen from its higher-scored side: the model predicts sigmoid(|d|), and is right if d > 0.
    """
    order = differences.abs().argsort()
    rows = []
    for part in order.chunk(bins):
        d = differences[part]
        rows.append(
            {
                "predicted": torch.sigmoid(d.abs()).mean().item(),
                "observed": (d > 0).float().mean().item(),
                "pairs": float(len(part)),
            }
        )
    return rows
