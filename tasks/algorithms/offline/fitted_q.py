"""Fitted Q evaluation: what a given policy would earn, estimated from a data set that others recorded.

Q <- argmin mean (Q(s, a) - r - gamma (1 - terminated) Q'(s', pi(s')))^2, again and again, Q' following Q; the estimate is the
mean of Q(s_0, pi(s_0)) over first states of episodes (Le et al. 2019, arXiv:1903.08738, algorithm 3, by gradient steps).
The estimate may be far off for a policy whose actions the data lacks. Targets are kept within what rewards like the data's can
add up to; otherwise the error would have no bound. A value passes through the horizon in 1 / (1 - gamma) iterations, and Q'
takes about 1 / rate steps for each: the product of the two is the length of a window. Fitting ends when three windows agree.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from math import ceil, inf
from typing import Protocol

import torch
from torch import Tensor

from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.networks.critics import Critics, bellman, follow, squared_errors
from tasks.algorithms.offline.transitions import Transitions

CHUNK = 8192  # observations that the policy acts on at once
ITERATION = 10  # steps that Q takes, at least, to follow a Q' that moved
PARTS = 10  # rows of the curve for each window
WINDOWS = 3  # that must agree; two would also agree where an estimate turns round
METRICS = {
    "loss": "The mean squared error of fitted-Q evaluation to its targets, over the steps since the previous row.",
    "estimate": "The policy's mean discounted return from first states of episodes, according to the critic at this step.",
}


class Policy(Protocol):
    """Any deterministic policy without a memory."""

    def act(self, observations: Tensor) -> Tensor:
        """(M, O) to (M,) long or (M, A) float."""
        ...


def acted(policy: Policy, observations: Tensor) -> Tensor:
    """The policy's actions for any number of observations."""
    return torch.cat([policy.act(chunk) for chunk in observations.split(CHUNK)])


def bounds(rewards: Tensor, gamma: float) -> tuple[float, float]:
    """The lowest and the highest discounted return that rewards like these (N,) can add up to in an episode of any length."""
    if gamma == 1:
        return -inf, inf
    return min(rewards.min().item(), 0.0) / (1 - gamma), max(rewards.max().item(), 0.0) / (1 - gamma)


def fit(
    critic: Critics,
    policy: Policy,
    data: Transitions,
    *,
    gamma: float,
    learning_rate: float,
    target_rate: float,
    batch_size: int,
    generator: torch.Generator,
) -> Iterator[Mapping[str, Tensor]]:
    """Train the critic in place, without end; yields each step's metrics."""
    critic.normaliser.fit(data.observations)
    target, optimizer = deepcopy(critic), Adam(critic.parameters(), learning_rate)
    following = acted(policy, data.next_observations)  # the policy is deterministic, so once is enough
    low, high = bounds(data.rewards, gamma)
    while True:
        rows = torch.randint(len(data), (batch_size,), generator=generator).to(data.device)
        batch = data.rows(rows)
        with torch.no_grad():
            goals = bellman(batch, target(batch.next_observations, following[rows])[0], gamma)
        value = squared_errors(critic(batch.observations, batch.actions), goals.clamp(low, high))
        optimizer.step(value)
        follow(target, critic, target_rate)
        yield {"loss": value.detach()}


def estimate(critic: Critics, policy: Policy, starts: Tensor) -> float:
    """The policy's mean discounted return from these states (M, O), according to the critic that was fitted for it."""
    with torch.no_grad():
        return critic(starts, acted(policy, starts)).mean().item()


def window(data: Transitions, gamma: float, target_rate: float) -> int:
    """The steps in which a bootstrapped value passes through the horizon, which is the longest episode without a discount."""
    horizon = 1 / (1 - gamma) if gamma < 1 else int(data.lengths.max())
    return ceil(round(horizon * max(ITERATION, 1 / target_rate), 6))


def scale(data: Transitions, gamma: float) -> float:
    """The root mean square of the episodes' discounted returns: the unit of the tolerance."""
    return data.returns_to_go(gamma)[data.starts].double().square().mean().sqrt().item()


def settled(estimates: Sequence[float], tolerance: float) -> bool:
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


def converge(
    critic: Critics,
    policy: Policy,
    starts: Tensor,
    steps: Iterable[Mapping[str, Tensor]],
    *,
    window: int,
    tolerance: float,
    most: int,
) -> Fit:
    """Drain the critic's `steps` until its estimate for `starts` (M, O) has settled within `tolerance`, for `most` steps at most."""
    every, curve, estimates = ceil(window / PARTS), list[dict[str, float]](), list[float]()
    left, remaining = most, iter(steps)
    while left and not settled(estimates, tolerance):
        losses = [row["loss"] for row in islice(remaining, min(every, left))]
        left -= len(losses)
        estimates.append(estimate(critic, policy, starts))
        loss = torch.stack(losses).mean().item()
        curve.append({"step": most - left, "loss": loss, "estimate": estimates[-1]})
    last = estimates[-PARTS:]
    return Fit(sum(last) / len(last), settled(estimates, tolerance), curve)
