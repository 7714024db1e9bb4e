"""Preference pairs as reward models and DPO train on them: each distinct response stands in a batch once.

K ranked responses give up to K (K - 1) / 2 pairs; passing K responses through the model instead of two for each pair is
the same loss at a fraction of the cost, and keeps all pairs of a prompt together (arXiv:2203.02155, section 3.5).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tasks.algorithms.common import distributed
from tasks.algorithms.language.completions import Completions, select_rank_prompts

# in place of a level: nobody said by how much, and that neither is better
NO_LEVEL = 4
TIED = -1


@dataclass(frozen=True)
class Pairs:
    """P pairs over N distinct responses."""

    responses: Completions  # N of them
    index: Tensor  # (N,) long, each response's place in the whole set
    chosen: Tensor  # (P,) long, rows of `responses`
    rejected: Tensor  # (P,) long
    weight: Tensor  # (P,) 1 / (pairs of the same prompt, or of the same ranking)
    level: Tensor  # (P,) long, by how much: 0 negligibly, 1 slightly, 2 better, 3 significantly; NO_LEVEL or TIED

    def parts(self, count: int) -> Iterator["Pairs"]:
        """The pairs in `count` parts of nearly equal numbers of prompts, each with its own responses only.

        There are fewer parts where there are fewer prompts.
        """
        if count == 1:
            yield self
            return
        prompt = self.responses.owner[self.chosen]
        for prompts in prompt.unique().tensor_split(count):
            mask = torch.isin(prompt, prompts)
            if mask.any():
                yield self._select_pairs(mask)

    def share(self, model: object, padded: bool = False) -> "tuple[Pairs, Tensor, float] | None":
        """The pairs of this rank's share of the prompts, the rows of their responses, and what they count: 1.

        A rank that has no prompt has None. Where ranks divide the model it has the first prompt's pairs, which count 0.
        `padded` leaves the responses as wide as they are here.
        """
        if distributed.get_world_size() == 1:
            return self, torch.arange(len(self.responses)), 1.0
        prompt = self.responses.owner[self.chosen]
        prompts, counted = select_rank_prompts(prompt, model)
        if not len(prompts):
            return None
        mask = torch.isin(prompt, prompts)
        return self._select_pairs(mask, padded), torch.cat([self.chosen[mask], self.rejected[mask]]).unique(), counted

    def _select_pairs(self, mask: Tensor, padded: bool = False) -> "Pairs":
        chosen = self.chosen[mask]
        rejected = self.rejected[mask]
        rows, inverse = torch.cat([chosen, rejected]).unique(return_inverse=True)
        return Pairs(
            self.responses.rows(rows, padded),
            self.index[rows],
            inverse[: len(chosen)],
            inverse[len(chosen) :],
            self.weight[mask],
            self.level[mask],
        )
