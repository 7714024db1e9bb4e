"""Direct preference optimisation: fit the policy to pairs without a reward model (arXiv:2305.18290, eq. 7).

The implicit reward of a response is beta * (log pi - log pi_ref), log-probabilities being sums over response tokens.
Only the margin between the two is trained, so the chosen log-probability may fall with the rejected one: both are logged.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from tasks.algorithms.completions import Completions, response_logps
from tasks.algorithms.optimizer import Optimizer
from tasks.algorithms.pairs import Pairs


@torch.no_grad()
def reference_logps(model: Any, batches: Iterable[Completions]) -> Tensor:
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


def fit(
    model: Any, batches: Iterable[Pairs], optimizer: Optimizer, *, reference: Tensor, beta: float
) -> Iterator[dict[str, float]]:
    """Train `model` in place, dropout off; `reference` (M,) has log pi_ref of every response of the whole set.

    Yields the metrics of each batch under TRL's names, and `logps/chosen_change`, negative when the chosen ones fell.
    """
    model.eval()
    for pairs in batches:
        logps, known = response_logps(model, pairs.responses), reference[pairs.index]
        chosen, rejected = logps[pairs.chosen], logps[pairs.rejected]
        losses, reward_chosen, reward_rejected = dpo_loss(
            chosen, rejected, known[pairs.chosen], known[pairs.rejected], beta
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
            "logps/chosen_change": (chosen.detach() - known[pairs.chosen]).mean().item(),
            "grad_norm": norm,
        }
