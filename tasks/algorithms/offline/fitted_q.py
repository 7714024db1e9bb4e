"""Fitted Q evaluation: what a given policy would earn, estimated from a data set that others recorded.

Q <- argmin mean (Q(s, a) - r - gamma (1 - terminated) Q'(s', pi(s')))^2, again and again, Q' following Q; the estimate
is the mean of Q(s_0, pi(s_0)) over first states of episodes (Le et al. 2019, arXiv:1903.08738, algorithm 3, by gradient
steps). The estimate may be far off for a policy whose actions the data lacks. Targets are kept within what rewards like
the data's can add up to; otherwise the error would have no bound. A value passes through the horizon in 1 / (1 - gamma)
iterations, and Q' takes about 1 / rate steps for each: the product of the two is the length of a window. Fitting ends
when three windows agree.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from itertools import islice
from math import ceil, inf
from typing import Protocol

import torch
from torch import Tensor, nn

from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.networks.critics import bellman_targets, polyak_update
from tasks.algorithms.offline.networks.mlp import Normaliser, mlp
from tasks.algorithms.offline.networks.stacked import Stacked
from tasks.algorithms.offline.transition_tensors import Spaces, TransitionBatch, Transitions

CHUNK = 8192  # observations that the policy acts on at once
ITERATION = 10  # steps that Q takes, at least, to follow a Q' that moved
PARTS = 10  # rows of the curve for each window
WINDOWS = 3  # that must agree; two would also agree where an estimate turns round
METRICS = {
    "loss": "The mean squared error of fitted-Q evaluation to its targets, over the steps since the previous row.",
    "estimate": "The policy's mean discounted return from first states of episodes, according to the "
    "critic at this step.",
}


class DeterministicPolicy(Protocol):
    """Any deterministic policy without a memory."""

    def act(self, observations: Tensor) -> Tensor:
        """(M, O) to (M,) long or (M, A) float."""
        ...


def compute_policy_actions(policy: DeterministicPolicy, observations: Tensor) -> Tensor:
    """The policy's actions for any number of observations."""
    return torch.cat([policy.act(chunk) for chunk in observations.split(CHUNK)])


def compute_return_bounds(rewards: Tensor, gamma: float) -> tuple[float, float]:
    """The lowest and the highest discounted return that rewards like these (N,) can add up to in an episode of any
    length.
    """
    if gamma == 1:
        return -inf, inf
    return min(rewards.min().item(), 0.0) / (1 - gamma), max(rewards.max().item(), 0.0) / (1 - gamma)


class Evaluators(nn.Module):
    """A Q-function for each of S policies on one data set, side by side; `seeds` (S) draw their first weights."""

    def __init__(self, spaces: Spaces, hidden: Sequence[int], seeds: Sequence[int]) -> None:
        super().__init__()
        self.spaces = spaces
        self.normaliser = Normaliser(spaces.observation)
        sizes = (spaces.observation, spaces.action) if spaces.discrete else (spaces.observation + spaces.action, 1)
        members = []
        for seed in seeds:
            torch.manual_seed(seed)
            members.append(mlp(sizes[0], hidden, sizes[1]))
        self.layers = Stacked(members)

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Q_i(s_i, a_i): (S, B, O) and (S, B) long or (S, B, A) to (S, B)."""
        return self.compute_q_values(self.layers, observations, actions)

    def compute_q_values(self, layers: nn.Module, observations: Tensor, actions: Tensor) -> Tensor:
        """The same by other layers, such as those of a target."""
        seen = self.normaliser(observations)
        if self.spaces.discrete:
            every: Tensor = layers(seen)
            return every.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
        values: Tensor = layers(torch.cat([seen, actions], dim=-1))
        return values.squeeze(-1)


def fit(
    critics: Evaluators,
    policies: Sequence[DeterministicPolicy],
    data: Transitions,
    *,
    gamma: float,
    learning_rate: float,
    target_rate: float,
    batch_size: int,
    generators: Sequence[torch.Generator],
) -> Iterator[Mapping[str, Tensor]]:
    """Train the critics of S policies in place, without end, each on batches of its own generator; yields each step's
    metrics (S,).
    """
    critics.normaliser.fit(data.observations)
    target = deepcopy(critics.layers)
    optimizer = Adam(critics.layers.parameters(), learning_rate)
    # The policies are deterministic, so once is enough.
    following = torch.cat([compute_policy_actions(policy, data.next_observations) for policy in policies])
    offsets = len(data) * torch.arange(len(policies), device=data.device).unsqueeze(1)
    low, high = compute_return_bounds(data.rewards, gamma)
    while True:
        drawn = [torch.randint(len(data), (batch_size,), generator=generator) for generator in generators]
        rows = torch.stack(drawn).to(data.device)
        flat = data.rows(rows.flatten())
        batch = TransitionBatch(
            *(getattr(flat, field.name).unflatten(0, rows.shape) for field in fields(TransitionBatch))
        )
        chosen = following.index_select(0, (rows + offsets).flatten()).unflatten(0, rows.shape)
        with torch.no_grad():
            goals = bellman_targets(batch, critics.compute_q_values(target, batch.next_observations, chosen), gamma)
        value = (critics(batch.observations, batch.actions) - goals.clamp(low, high)).square().mean(-1)
        optimizer.step(value.sum())
        polyak_update(target, critics.layers, target_rate)
        yield {"loss": value.detach()}


def estimate_policy_returns(
    critics: Evaluators, policies: Sequence[DeterministicPolicy], starts: Tensor
) -> list[float]:
    """Each policy's mean discounted return from these states (M, O), according to the critic that was fitted for it."""
    with torch.no_grad():
        actions = torch.stack([compute_policy_actions(policy, starts) for policy in policies])
        means: list[float] = critics(starts.expand(len(policies), -1, -1), actions).mean(-1).cpu().tolist()
    return means


def compute_convergence_window(data: Transitions, gamma: float, target_rate: float) -> int:
    """The steps in which a bootstrapped value passes through the horizon, which is the longest episode without a
    discount.
    """
    horizon = 1 / (1 - gamma) if gamma < 1 else int(data.lengths.max())
    return ceil(round(horizon * max(ITERATION, 1 / target_rate), 6))


def compute_return_scale(data: Transitions, gamma: float) -> float:
    """The root mean square of the episodes' discounted returns: the unit of the tolerance."""
    return data.returns_to_go(gamma)[data.starts].double().square().mean().sqrt().item()


def has_converged(estimates: Sequence[float], tolerance: float) -> bool:
    """Whether the means of the last three windows, of PARTS estimates each, lie within `tolerance` of each other."""
    if len(estimates) < WINDOWS * PARTS:
        return False
    last = estimates[-WINDOWS * PARTS :]
    means = [sum(last[start : start + PARTS]) / PARTS for start in range(0, len(last), PARTS)]
    return max(means) - min(means) <= tolerance


@dataclass(frozen=True)
class Fit:
    """An estimate, the mean of its last window, and the curve that led to it."""

    value: float
    converged: bool
    curve: list[dict[str, float]]  # `step` and METRICS


def fit_until_converged(
    critics: Evaluators,
    policies: Sequence[DeterministicPolicy],
    starts: Tensor,
    steps: Iterable[Mapping[str, Tensor]],
    *,
    window: int,
    tolerance: float,
    most: int,
) -> list[Fit]:
    """Drain the critics' `steps` until their estimates for `starts` (M, O) have settled within `tolerance`, for `most`
    steps at most.

    One that settles before the others is trained on beside them; its curve and its estimate end where it settled.
    """
    every = ceil(window / PARTS)
    left = most
    remaining = iter(steps)
    curves: list[list[dict[str, float]]] = [[] for _ in policies]
    histories: list[list[float]] = [[] for _ in policies]
    while left and not all(has_converged(history, tolerance) for history in histories):
        losses = [row["loss"] for row in islice(remaining, min(every, left))]
        left -= len(losses)
        means = torch.stack(losses).mean(0).cpu().tolist()
        for curve, history, loss, value in zip(
            curves, histories, means, estimate_policy_returns(critics, policies, starts), strict=True
        ):
            if not has_converged(history, tolerance):
                history.append(value)
                curve.append({"step": most - left, "loss": loss, "estimate": value})
    lasts = [history[-PARTS:] for history in histories]
    return [
        Fit(sum(last) / len(last), has_converged(history, tolerance), curve)
        for last, history, curve in zip(lasts, histories, curves, strict=True)
    ]
