"""A critic of episodes: the value of a state before an action, or of the action in it."""

import torch
from torch import Tensor

from tasks.algorithms.agents.transcripts import Transcripts, compute_transcript_states
from tasks.algorithms.language.completions import apply_head_in_fp32
from tasks.algorithms.language.critic import Critic


class TurnCritic(Critic):
    """A language model's body with a head that reads a value behind each token.

    Behind the last token of an observation that is V(s), behind the last token of an action Q(s, a).
    """

    def forward(self, transcripts: Transcripts) -> Tensor:  # type: ignore[override]  # reads transcripts in place of responses
        """The value behind each token: (N, T), zero on padding."""
        read = transcripts.on(self)
        return apply_head_in_fp32(self.head, compute_transcript_states(self.body, read)).squeeze(-1) * read.mask


def gather_state_values(values: Tensor, transcripts: Transcripts) -> Tensor:
    """V(s_k), from what the critic reads behind each token (N, T): (N, K), zero without a turn."""
    return values.gather(1, transcripts.before) * transcripts.taken


def gather_action_values(values: Tensor, transcripts: Transcripts) -> Tensor:
    """Q(s_k, a_k): (N, K), zero without a turn."""
    return values.gather(1, transcripts.last) * transcripts.taken


def gather_token_values(values: Tensor, transcripts: Transcripts) -> Tensor:
    """V before each token of the policy: (N, T), zero elsewhere."""
    return torch.nn.functional.pad(values[:, :-1], (1, 0)) * transcripts.acts
