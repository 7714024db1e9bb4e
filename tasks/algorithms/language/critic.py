"""The value of a state: the expected reward of a response, estimated before each of its tokens."""

import copy

import torch
from torch import Tensor

from tasks.algorithms.language.causal_lm import CausalLMWithBody
from tasks.algorithms.language.completions import Completions, apply_head_in_fp32, compute_response_states

METRICS = {
    "val/explained_variance": "The share of the variance of the reward-to-go that the critic's values explain: 1 "
    "is perfect, 0 no better than the mean, below 0 worse.",
}


class Critic(torch.nn.Module):
    """A copy of a policy's body with a linear head that starts at 0, trained apart from the policy; frozen weights are
    shared.
    """

    def __init__(self, policy: CausalLMWithBody) -> None:
        super().__init__()
        frozen = {id(p): p for p in policy.parameters() if not p.requires_grad}
        self.body = copy.deepcopy(policy.base_model, frozen)
        first = next(self.body.parameters())
        self.head = torch.nn.Linear(policy.config.hidden_size, 1, device=first.device)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)
        self.eval()  # dropout off

    def forward(self, responses: Completions) -> Tensor:
        """V(s_t), s_t being the prompt and the tokens before t: (N, L), zero where masked out."""
        values = apply_head_in_fp32(self.head, compute_response_states(self.body, responses)[:, :-1]).squeeze(-1)
        return values * responses.mask.to(values.device)

    def get_output_embeddings(self) -> torch.nn.Linear:
        """The head, as the optimizer asks for it."""
        return self.head


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> float:
    """1 - Var(returns - values) / Var(returns) over masked-in tokens: 1 for a perfect critic, 0 for one that predicts
    the mean, and without tokens.
    """
    if not mask.any():
        return 0.0
    truth = returns[mask]
    error = (returns - values)[mask]
    variance = truth.var(correction=0).item()
    return 1 - error.var(correction=0).item() / variance if variance > 0 else 0.0
