"""Windows of K steps of a data set's episodes, as the Decision Transformer reads them.

Windows are padded on the right: causal attention then needs no mask, and a step has the same place as in play.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.algorithms.offline.transition_tensors import Transitions


@dataclass(frozen=True)
class Windows:
    """B windows of K steps."""

    returns_to_go: Tensor  # (B, K) float, not scaled
    observations: Tensor  # (B, K, O) float
    actions: Tensor  # (B, K) long, or (B, K, A) float
    timesteps: Tensor  # (B, K) long, from 0 at the start of the episode
    valid: Tensor  # (B, K) bool, False on padding


class EpisodeWindows:
    """A data set, ready to be cut: returns-to-go and the steps left in each episode are computed once."""

    def __init__(self, transitions: Transitions, context: int) -> None:
        self.longest = int(transitions.lengths.max())
        self.context = min(context, self.longest)  # more would be padding in every window
        self.returns_to_go = transitions.returns_to_go()
        self.timesteps = transitions.timesteps
        self.observations = transitions.observations
        self.actions = transitions.actions
        self.left = transitions.lengths[transitions.episode] - self.timesteps  # (N,) this step included

    def cut(self, starts: Tensor) -> Windows:
        """The windows that begin with these transitions (B,); what lies beyond their episode's end is padding.

        The padding repeats the episode's last step; any finite numbers would do.
        """
        ahead = torch.arange(self.context, device=starts.device)
        left = self.left[starts, None]
        rows = starts[:, None] + ahead.minimum(left - 1)
        return Windows(
            self.returns_to_go[rows], self.observations[rows], self.actions[rows], self.timesteps[rows], ahead < left
        )

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Windows]:
        """Batches of `size` windows, without end. All transitions are equally likely starts.

        So an episode is drawn in proportion to its length, and a start in it uniformly, as in the paper.
        """
        count = len(self.left)
        device = self.left.device
        while True:
            yield self.cut(torch.randint(count, (size,), generator=generator).to(device))
