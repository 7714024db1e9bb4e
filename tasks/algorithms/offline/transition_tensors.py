"""A data set of transitions as tensors, loaded once: what every offline method learns from.

Truncation is not termination: a value may be bootstrapped from `next_observations` wherever `terminated` is False, and
a truncated episode's last next observation is the true one. All tensors lie on one device, and so do those made from
them. Random numbers are drawn on the CPU, so that a seed draws the same rows on every device.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import ceil, inf
from typing import Self, TypeVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class Spaces:
    """What an environment shows and takes: sizes of its vectors, or the number of discrete actions."""

    observation: int
    action: int
    discrete: bool


@dataclass(frozen=True)
class TransitionBatch:
    """B transitions, in any order."""

    observations: Tensor  # (B, O) float
    actions: Tensor  # (B,) long, or (B, A) float
    rewards: Tensor  # (B,) float
    next_observations: Tensor  # (B, O) float
    terminated: Tensor  # (B,) bool

    @property
    def device(self) -> torch.device:
        """The device of all its tensors."""
        return self.rewards.device

    def to(self, device: torch.device | str) -> Self:
        """The same on this device."""
        return replace(self, **{field.name: getattr(self, field.name).to(device) for field in fields(self)})


@dataclass(frozen=True)
class Referenced(TransitionBatch):
    """Transitions, and what was earned from each on by the policy that recorded it: its discounted return-to-go, or
    -inf where that is not known.
    """

    reference: Tensor  # (B,) float

    @classmethod
    def of(cls, batch: TransitionBatch, reference: Tensor) -> Self:
        """These transitions with their references (B,)."""
        return cls(**{field.name: getattr(batch, field.name) for field in fields(TransitionBatch)}, reference=reference)


Kind = TypeVar("Kind", bound=TransitionBatch)


def merge_batches_by_mask(first: Tensor, batch: Kind, other: Kind) -> Kind:
    """The transitions of `batch` where `first` (B,) is true, and those of `other` elsewhere; both have B."""
    pairs = {field.name: (getattr(batch, field.name), getattr(other, field.name)) for field in fields(batch)}
    return replace(
        batch,
        **{name: torch.where(first.view(-1, *[1] * (mine.ndim - 1)), mine, its) for name, (mine, its) in pairs.items()},
    )


def concatenate_batches(batch: Kind, other: Kind) -> Kind:
    """The transitions of `batch`, then those of `other`."""
    return replace(
        batch,
        **{field.name: torch.cat([getattr(batch, field.name), getattr(other, field.name)]) for field in fields(batch)},
    )


@dataclass(frozen=True)
class Transitions(TransitionBatch):
    """N transitions of E whole episodes, as they followed each other: B is N, and `lengths` cuts them into episodes."""

    lengths: Tensor  # (E,) long, sums to N

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def discrete(self) -> bool:
        """Whether actions are numbers of a finite set."""
        return self.actions.ndim == 1

    @cached_property
    def starts(self) -> Tensor:
        """Where each episode's first transition stands: (E,)."""
        return self.lengths.cumsum(0) - self.lengths

    @cached_property
    def episode(self) -> Tensor:
        """The episode of each transition: (N,)."""
        return torch.arange(len(self.lengths), device=self.device).repeat_interleave(self.lengths)

    @cached_property
    def timesteps(self) -> Tensor:
        """The number of each transition within its episode, from 0: (N,)."""
        return torch.arange(len(self), device=self.device) - self.starts[self.episode]

    @cached_property
    def returns(self) -> Tensor:
        """The undiscounted sum of each episode's rewards: (E,)."""
        return self.rewards.new_zeros(len(self.lengths)).index_add(0, self.episode, self.rewards)

    @cached_property
    def ended(self) -> Tensor:
        """Whether each episode ended by itself and was not cut: (E,) bool."""
        return self.terminated[self.starts + self.lengths - 1]

    @cached_property
    def cut_early(self) -> Tensor:
        """Whether each episode was cut before the longest that was cut: (E,) bool.

        What a time limit's length would have earned is not known then.
        """
        return ~self.ended & (self.lengths < self._limit)

    @property
    def _limit(self) -> Tensor:
        """The length of the longest episode that was cut, 0 if none was: ()."""
        return self.lengths.where(~self.ended, 0).max()

    def references(self, gamma: float) -> Tensor:
        """The returns-to-go that are lower bounds of values, (N,): -inf in an episode that was cut, since nobody knows
        the rest of it.
        """
        return self.returns_to_go(gamma).where(self.ended[self.episode], -inf)

    def returns_to_go(self, gamma: float = 1.0) -> Tensor:
        """The discounted sum of rewards from each transition to the end of its episode, itself included: (N,)."""
        result = self.rewards.double().clone()
        for length in range(1, int(self.lengths.max())):  # one step further back in all episodes at once
            rows = (self.starts + self.lengths - 1 - length)[self.lengths > length]
            result[rows] += gamma * result[rows + 1]
        return result.to(self.rewards.dtype)

    def episodes(self, chosen: Tensor) -> "Transitions":
        """These episodes only, in the order of `chosen` (long, any length)."""
        lengths = self.lengths[chosen]
        skipped = self.starts[chosen] - (lengths.cumsum(0) - lengths)  # rows left out before each
        rows = torch.arange(int(lengths.sum()), device=self.device) + skipped.repeat_interleave(lengths)
        columns = {field.name: getattr(self, field.name)[rows] for field in fields(TransitionBatch)}
        return Transitions(**columns, lengths=lengths)

    def best(self, share: float) -> "Transitions":
        """The best `share` of the episodes by return, at least one; of equals the earlier (10%BC keeps trajectories).

        One that was cut early counts as if it had cost as much a step until the limit as before; what it earned is not
        continued.
        """
        count = max(1, ceil(share * len(self.lengths)))
        rest = (self._limit - self.lengths).where(self.cut_early, 0)
        returns = self.returns + rest * (self.returns / self.lengths).clamp(max=0)
        chosen = returns.argsort(descending=True, stable=True)[:count]
        return self.episodes(chosen.sort().values)

    def rows(self, rows: Tensor) -> TransitionBatch:
        """These transitions (long, any length)."""
        return TransitionBatch(*(getattr(self, field.name).index_select(0, rows) for field in fields(TransitionBatch)))

    def batches(
        self, size: int, generator: torch.Generator, *, replay: bool = True, reference: Tensor | None = None
    ) -> Iterator[TransitionBatch]:
        """Batches of `size` transitions, drawn uniformly with replacement, without end; with a `reference` (N,) they
        are `Referenced`.

        Without `replay` each is a run of transitions from a random place on.
        """
        following = torch.arange(size)
        while not replay:
            first = torch.randint(len(self), (), generator=generator)
            yield self.rows(((first + following) % len(self)).to(self.device))
        while True:
            rows = torch.randint(len(self), (size,), generator=generator).to(self.device)
            batch = self.rows(rows)
            yield batch if reference is None else Referenced.of(batch, reference[rows])
