"""Hindsight experience replay (Andrychowicz et al. 2017, arXiv:1707.01495): what was reached is taken for what was
asked.

A transition is kept a second time with another goal in the place of the one that was asked, and the reward that this
goal would have paid (Algorithm 1). Which goal: one that the same episode reached at the transition's end or later
(`future`), at its end (`final`), or anywhere (`episode`); section 4.5.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from tasks.algorithms.offline.transition_tensors import TransitionBatch, Transitions, merge_batches_by_mask

Strategy = Literal["future", "final", "episode"]


@dataclass(frozen=True)
class Goals:
    """Where goals of G numbers stand in an observation, and what they pay."""

    achieved: slice
    desired: slice
    reward: Callable[[Tensor, Tensor], Tensor]  # of goals achieved and desired, (M, G) each: (M,)
    terminated: Callable[[Tensor, Tensor], Tensor] | None  # whether they end an episode: (M,) bool; None: no goal does


@dataclass(frozen=True)
class Hindsight:
    """How goals are taken from an episode."""

    goals: Goals
    strategy: Strategy
    copies: int  # of each transition, with a goal each

    @property
    def share(self) -> float:
        """Of all transitions, those whose goal is not the one that was asked."""
        return self.copies / (1 + self.copies)


def draw_goal_rows(strategy: Strategy, rows: Tensor, first: Tensor, last: Tensor, generator: torch.Generator) -> Tensor:
    """For each of the `rows` (M,) one row of its episode, `first` to `last` (M,), at whose end the goal was reached:
    (M,).

    A random number is drawn for each row whatever the strategy.
    """
    drawn = torch.rand(rows.shape, generator=generator, dtype=torch.float64).to(rows.device)
    start = {"future": rows, "final": last, "episode": first}[strategy]
    return start + (drawn * (last + 1 - start)).long()


def relabel_goals(batch: TransitionBatch, achieved: Tensor, goals: Goals) -> TransitionBatch:
    """The batch as if these goals (B, G) had been asked for; observations are the environment's own.

    What ended otherwise than at its goal still ends.
    """
    observations = batch.observations.clone()
    following = batch.next_observations.clone()
    observations[:, goals.desired] = achieved
    following[:, goals.desired] = achieved
    reached = following[:, goals.achieved]
    terminated = batch.terminated
    if goals.terminated is not None:
        otherwise = terminated & ~goals.terminated(reached, batch.next_observations[:, goals.desired])
        terminated = otherwise | goals.terminated(reached, achieved)
    return replace(
        batch,
        observations=observations,
        next_observations=following,
        rewards=goals.reward(reached, achieved),
        terminated=terminated,
    )


def iterate_relabelled_copies(
    episode: TransitionBatch, hindsight: Hindsight, generator: torch.Generator
) -> Iterator[TransitionBatch]:
    """The T transitions of one whole episode, once for each copy."""
    count = len(episode.rewards)
    rows = torch.arange(count, device=episode.device)
    first = torch.zeros_like(rows)
    last = torch.full_like(rows, count - 1)
    for _ in range(hindsight.copies):
        later = draw_goal_rows(hindsight.strategy, rows, first, last, generator)
        yield relabel_goals(episode, episode.next_observations[later, hindsight.goals.achieved], hindsight.goals)


@dataclass(frozen=True)
class Relabelled:
    """A data set, `share` of whose transitions get another goal each time they are drawn."""

    data: Transitions
    goals: Goals
    strategy: Strategy
    share: float

    def batches(self, size: int, generator: torch.Generator) -> Iterator[TransitionBatch]:
        """Batches of `size` transitions, drawn uniformly with replacement, without end."""
        data = self.data
        first = self.data.starts[self.data.episode]
        last = first + self.data.lengths[self.data.episode] - 1
        while True:
            rows = torch.randint(len(data), (size,), generator=generator).to(data.device)
            later = draw_goal_rows(self.strategy, rows, first[rows], last[rows], generator)
            changed = (torch.rand(size, generator=generator) < self.share).to(data.device)
            batch = data.rows(rows)
            other = relabel_goals(batch, data.next_observations[later][:, self.goals.achieved], self.goals)
            yield merge_batches_by_mask(changed, other, batch)
