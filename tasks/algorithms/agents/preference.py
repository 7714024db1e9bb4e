"""Direct preference optimisation on whole episodes (arXiv:2305.18290, eq. 7): of two episodes of one game, the one that
went better.

The log-probability of an episode is that of the policy's tokens; what the environment said has no part in it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.algorithms.agents.transcripts import Transcript, Transcripts, compute_action_logps, make_transcripts
from tasks.algorithms.common.optimizer import METRICS as OPTIMIZER_METRICS
from tasks.algorithms.common.optimizer import Optimizer
from tasks.algorithms.language.causal_lm import CausalLM
from tasks.algorithms.language.dpo import MarginLoss

METRICS = {
    "loss": "The mean of -log sigmoid(beta x margin) over the batch's pairs.",
    "rewards/margins": "The mean difference of implicit reward between the better and the worse episode of a pair; "
    "it should rise.",
    "rewards/accuracies": "The share of the pairs whose better episode has the higher implicit reward, from 0 to 1.",
    **OPTIMIZER_METRICS,
}


@dataclass(frozen=True)
class EpisodePair:
    """Two episodes of one game."""

    better: Transcript
    worse: Transcript


def build_dpo_objective(beta: float) -> MarginLoss:
    """DPO's own loss."""
    return MarginLoss("sigmoid", beta, label_smoothing=0.0, gamma=0.0, length_normalised=False, nll=0.0)


@torch.no_grad()
def compute_episode_reference_logps(model: CausalLM, pairs: Sequence[EpisodePair], pad: int, batch_size: int) -> Tensor:
    """log pi_ref of the better and of the worse episode of each pair: (P, 2)."""
    model.eval()
    parts = (pairs[at : at + batch_size] for at in range(0, len(pairs), batch_size))
    return torch.cat([_compute_pair_logps(model, _stack_pairs(part, pad)) for part in parts])


def fit(
    model: CausalLM,
    batches: Iterator[tuple[Sequence[EpisodePair], Tensor]],
    pad: int,
    beta: float,
    optimizer: Optimizer,
) -> Iterator[dict[str, float]]:
    """Train `model` in place, dropout off, one step a batch of pairs with their reference_logps (P, 2).

    Yields a step's METRICS.
    """
    model.eval()
    how = build_dpo_objective(beta)
    for pairs, reference in batches:
        rate = optimizer.learning_rate
        change = _compute_pair_logps(model, _stack_pairs(pairs, pad)) - reference
        margin = change[:, 0] - change[:, 1]
        loss = how.losses(margin).mean()
        loss.backward()
        yield {
            "loss": loss.item(),
            "rewards/margins": beta * margin.mean().item(),
            "rewards/accuracies": (margin > 0).float().mean().item(),
            "grad_norm": optimizer.step(),
            "learning_rate": rate,
        }


def _stack_pairs(pairs: Sequence[EpisodePair], pad: int) -> Transcripts:
    """The better episodes, then the worse ones."""
    return make_transcripts([*(pair.better for pair in pairs), *(pair.worse for pair in pairs)], pad)


def _compute_pair_logps(model: CausalLM, episodes: Transcripts) -> Tensor:
    """(P, 2) from the 2 P episodes of `_stack_pairs`."""
    return compute_action_logps(model, episodes).sum(1).view(2, -1).T
