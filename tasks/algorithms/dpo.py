"""Direct preference optimisation: fit the policy to pairs without a reward model (arXiv:2305.18290, eq. 7).

The implicit reward of a response is beta * (log pi - log pi_ref), log-probabilities being sums over response tokens.
Only the margin between the two is trained, so the chosen log-probability may fall with the rejected one: both are logged.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from tasks.algorithms.logprobs import Batch, response_logps
from tasks.algorithms.optimizer import Optimizer


@dataclass(frozen=True)
class Pairs:
    """P pairs: their sequences, and log-probabilities (P,) of both under the reference, computed once before training."""

    chosen: Batch
    rejected: Batch
    reference_chosen: Tensor
    reference_rejected: Tensor


@torch.no_grad()
def reference_logps(model: Any, batches: Iterable[Batch]) -> Tensor:
    """log pi_ref of every response, in order: (N,)."""
    model.eval()
    return torch.cat([response_logps(model, batch) for batch in batches])


def dpo_loss(
    chosen: Tensor, rejected: Tensor, reference_chosen: Tensor, reference_rejected: Tensor, beta: float
) -> tuple[Tensor, Tensor, Tensor]:
    """-log sigmoid(reward_w - reward_l) of each pair, and both rewards: three tensors (P,)."""
    reward_chosen = beta * (chosen - reference_chosen)
    reward_rejected = beta * (rejected - reference_rejected)
    return -logsigmoid(reward_chosen - reward_rejected), reward_chosen.detach(), reward_rejected.detach()


def fit(model: Any, batches: Iterable[Pairs], optimizer: Optimizer, beta: float) -> Iterator[dict[str, float]]:
    """Train `model` in place, dropout off. Yields the metrics of each batch under TRL's names."""
    model.eval()
    for pairs in batches:
        chosen, rejected = response_logps(model, pairs.chosen), response_logps(model, pairs.rejected)
        losses, reward_chosen, reward_rejected = dpo_loss(
            chosen, rejected, pairs.reference_chosen, pairs.reference_rejected, beta
        )
        loss = losses.mean()
        loss.backward()
        norm = optimizer.step()
        yield {
            "loss": loss.item(),
            "rewards/chosen": reward_chosen.mean().item(),
            "rewards/rejected": reward_rejected.mean().item(),
            "rewards/margins": (reward_chosen - reward_rejected).mean().item(),
            "rewards/accuracies": (reward_chosen > reward_rejected).float().mean().item(),
            "logps/chosen": chosen.mean().item(),
            "logps/rejected": rejected.mean().item(),
            "logps/chosen_change": (chosen.detach() - pairs.reference_chosen).mean().item(),
            "grad_norm": norm,
        }
