"""Tabular Q-learning from counts, swept to convergence: dynamic programming on the Markov chain that the data shows.

Q(s, a) <- 1 / N(s, a) sum_i (r_i + gamma (1 - terminated_i) V(s'_i)) over the N(s, a) transitions from (s, a), then
V(s) <- max_a Q(s, a) over the actions that the data has in s (Watkins 1989, over a whole batch at once). States are the
distinct observations. It stitches: the best path may consist of pieces of many episodes.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property

import torch
from torch import Tensor, nn

from tasks.algorithms.offline.transition_tensors import Spaces, Transitions

METRICS = {
    "change": "The largest change of a state's value by the sweep; the sweeps end when it is at most the tolerance.",
    "initial_value": "The mean value of the first states of the data's episodes: the discounted return that the "
    "table predicts.",
}


class QTable(nn.Module):
    """Q-values of the distinct observations of a data set, and how often the data took each action in them.

    It is greedy among the actions seen. In a state that the data never left, it takes the data's commonest action.
    """

    states: Tensor  # (S, O) float, those left by an action and those only arrived at
    counts: Tensor  # (S, A) long
    q: Tensor  # (S, A) double, 0 for actions that the data never took
    commonest: Tensor  # () long, the data's commonest action
    lowest: Tensor  # () double, the value of a state that the data never left

    def __init__(self, spaces: Spaces, states: int, gamma: float) -> None:
        super().__init__()
        self.spaces = spaces
        self.gamma = gamma
        self.register_buffer("states", torch.zeros(states, spaces.observation))
        self.register_buffer("counts", torch.zeros((states, spaces.action), dtype=torch.long))
        self.register_buffer("q", torch.zeros((states, spaces.action), dtype=torch.double))
        self.register_buffer("commonest", torch.zeros((), dtype=torch.long))
        self.register_buffer("lowest", torch.zeros((), dtype=torch.double))

    @property
    def sizes(self) -> dict[str, object]:
        """The arguments that it is made from besides its spaces (tasks/offline/policies/files.py)."""
        return {"states": len(self.states), "gamma": self.gamma}

    @cached_property
    def _state_numbers(self) -> dict[bytes, int]:
        return {key: number for number, key in enumerate(_encode_row_keys(self.states))}

    def greedy(self) -> Tensor:
        """V(s), the highest Q of the actions seen: (S,) double."""
        return torch.where(self.left(), self._mask_unseen_actions().amax(dim=1), self.lowest)

    def left(self) -> Tensor:
        """Whether the data has any action in each state: (S,) bool."""
        return self.counts.sum(dim=1) > 0

    def act(self, observations: Tensor) -> Tensor:
        """(M, O) to (M,) long."""
        best = torch.where(self.left(), self._mask_unseen_actions().argmax(dim=1), self.commonest)
        return self._look_up_states(observations, best, self.commonest)

    def values(self, observations: Tensor) -> Tensor:
        """max Q over the actions seen: (M, O) to (M,)."""
        return self._look_up_states(observations, self.greedy(), self.lowest).float()

    def _mask_unseen_actions(self) -> Tensor:
        return torch.where(self.counts > 0, self.q, -torch.inf)

    def _look_up_states(self, observations: Tensor, states: Tensor, unknown: Tensor) -> Tensor:
        """The values of `states` (S,) at the observed states, (M, O) to (M,); `unknown` where a state is not in the
        table.
        """
        numbers = torch.tensor([self._state_numbers.get(key, -1) for key in _encode_row_keys(observations)]).to(
            observations.device
        )
        return torch.where(numbers < 0, unknown, states[numbers])


def _encode_row_keys(observations: Tensor) -> list[bytes]:
    """A key for each row; equal rows have equal keys, since -0 + 0 is 0."""
    return [row.tobytes() for row in (observations + 0.0).cpu().numpy()]


class TooManyStates(ValueError):
    """The data set has more distinct observations than a table is made for."""


def build_q_table(data: Transitions, spaces: Spaces, gamma: float, most: int) -> tuple[QTable, Tensor, Tensor]:
    """An empty table, and the states (N,) and next states (N,) of the transitions in it; TooManyStates beyond
    `most`.
    """
    both = torch.cat([data.observations, data.next_observations])
    states, numbers = both.unique(dim=0, return_inverse=True)
    if len(states) > most:
        raise TooManyStates(f"{len(states)} distinct observations, and a table has at most {most}")
    made = QTable(spaces, len(states), gamma)
    made.states.copy_(states)
    cells = numbers[: len(data)] * spaces.action + data.actions
    made.counts.copy_(torch.bincount(cells, minlength=made.counts.numel()).view(made.counts.shape))
    made.commonest.copy_(torch.bincount(data.actions, minlength=spaces.action).argmax())
    made.lowest.copy_(data.rewards.double().min().clamp(max=0) / (1 - gamma))
    return made, numbers[: len(data)], numbers[len(data) :]


def fit(
    made: QTable, data: Transitions, states: Tensor, next_states: Tensor, tolerance: float
) -> Iterator[Mapping[str, float]]:
    """Sweep until no value changes by more than `tolerance`; yields each sweep's metrics (METRICS).

    `states` and `next_states` come from `table`. A state in which the data was truncated and that it never left has the
    lowest value that rewards like the data's can add up to: with V = 0, the usual start, it would be the best of all
    states wherever rewards are negative. gamma < 1 makes the sweeps converge.
    """
    cells = states * made.spaces.action + data.actions
    rewards = data.rewards.double()
    going_on = made.gamma * (~data.terminated).double()
    value = torch.where(made.left(), 0.0, made.lowest)
    change = torch.inf
    while change > tolerance:
        sums = torch.zeros(made.q.numel(), dtype=torch.double).index_add_(
            0, cells, rewards + going_on * value[next_states]
        )
        made.q.copy_(sums.view(made.q.shape) / made.counts.clamp(min=1))
        updated = made.greedy()
        change = (updated - value).abs().max().item()
        value = updated
        yield {"change": change, "initial_value": value[states[data.starts]].mean().item()}
