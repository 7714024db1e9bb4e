"""A growing memory of transitions, whose oldest make room once it is full."""

from collections.abc import Mapping
from dataclasses import fields
from math import inf

import torch
from torch import Tensor

from tasks.algorithms.offline.transition_tensors import Referenced, Spaces, TransitionBatch


class ReplayBuffer:
    """The last `capacity` transitions added (Lin 1992; Mnih et al. 2015)."""

    def __init__(self, spaces: Spaces, capacity: int, device: torch.device | str = "cpu") -> None:
        seen = torch.zeros(capacity, spaces.observation)
        columns = TransitionBatch(
            observations=seen,
            actions=torch.zeros(capacity, dtype=torch.long)
            if spaces.discrete
            else torch.zeros(capacity, spaces.action),
            rewards=torch.zeros(capacity),
            next_observations=seen.clone(),
            terminated=torch.zeros(capacity, dtype=torch.bool),
        )
        unknown = torch.full((capacity,), -inf)
        self.columns = Referenced.of(columns, unknown).to(device)
        self.added = 0

    def add(self, observation: Tensor, action: Tensor, reward: float, following: Tensor, terminated: bool) -> None:
        """Add one transition; observations are (O,), the action () long or (A,) float."""
        row = self.added % len(self.columns.rewards)
        self.columns.observations[row] = observation
        self.columns.actions[row] = action
        self.columns.rewards[row] = reward
        self.columns.next_observations[row] = following
        self.columns.terminated[row] = terminated
        self.columns.reference[row] = -inf
        self.added += 1

    def extend(self, batch: TransitionBatch) -> None:
        """Add a batch's transitions in their order; what was earned from each on is not known."""
        self.added += len(batch.rewards)
        kept = min(len(batch.rewards), len(self.columns.rewards))
        rows = torch.arange(self.added - kept, self.added) % len(self.columns.rewards)
        added = Referenced.of(batch, torch.full_like(batch.rewards, -inf))
        for name, column in vars(self.columns).items():
            column[rows.to(column.device)] = getattr(added, name)[len(batch.rewards) - kept :]

    def set_references(self, reference: Tensor) -> None:
        """What was earned (T,) from each of the last T transitions added on, the oldest first."""
        kept = min(len(reference), self.kept)
        rows = torch.arange(self.added - kept, self.added) % len(self.columns.rewards)
        self.columns.reference[rows.to(self.columns.device)] = reference[len(reference) - kept :]

    def batch(self, size: int, generator: torch.Generator) -> Referenced:
        """`size` transitions, drawn uniformly with replacement."""
        return self.rows(torch.randint(self.kept, (size,), generator=generator).to(self.columns.device))

    def latest(self, size: int) -> Referenced:
        """The last `size` transitions added, the oldest first; fewer where there are no more."""
        rows = torch.arange(self.added - min(size, self.kept), self.added) % len(self.columns.rewards)
        return self.rows(rows.to(self.columns.device))

    @property
    def kept(self) -> int:
        """How many there are."""
        return min(self.added, len(self.columns.rewards))

    def rows(self, rows: Tensor) -> Referenced:
        """These transitions (long, any length), by their places in the memory."""
        return Referenced(*(getattr(self.columns, field.name)[rows] for field in fields(Referenced)))

    def state_dict(self) -> dict[str, Tensor]:
        """All columns, and how many transitions were added."""
        return {"added": torch.tensor(self.added), **vars(self.columns)}

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> None:
        """Load what `state_dict` returned."""
        self.added = int(state["added"])
        for name, column in vars(self.columns).items():
            column.copy_(state[name])
