"""Playing whole episodes in an environment, many at once, with a policy that may remember what it has seen.

Episode i is reset with `seed + i` and played once, in an environment of its own: its result depends neither on the number
of episodes nor on how long the others last, as it would where environments are reset in place.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks import simulators


class Memoryless(Protocol):
    """A policy that needs the present observation only."""

    def act(self, observations: Tensor) -> Tensor:
        """Actions for (M, O) observations: (M,) long or (M, A) float."""
        ...


@runtime_checkable
class Player(Protocol):
    """A policy as it plays episodes side by side; `running` (M,) long are the numbers of those that have not ended."""

    def begin(self, episodes: int) -> None:
        """Forget what was played before."""
        ...

    def act(self, running: Tensor, observations: Tensor) -> Tensor:
        """Actions for what the running episodes see, (M, O): (M,) long or (M, A) float."""
        ...

    def observe(self, running: Tensor, rewards: Tensor) -> None:
        """The rewards (M,) that the last actions brought."""
        ...


class Forgetful:
    """A memoryless policy as a player."""

    def __init__(self, policy: Memoryless) -> None:
        self.policy = policy

    def begin(self, episodes: int) -> None:
        """Nothing to forget."""

    def act(self, running: Tensor, observations: Tensor) -> Tensor:
        """The policy's actions."""
        return self.policy.act(observations)

    def observe(self, running: Tensor, rewards: Tensor) -> None:
        """Nothing to remember."""


def as_player(policy: Memoryless | Player) -> Player:
    """The policy itself if it remembers what it plays, else with a memory of nothing."""
    return policy if isinstance(policy, Player) else Forgetful(policy)


@dataclass(frozen=True)
class Played:
    """What E episodes came to."""

    returns: NDArray[np.float64]  # (E,) undiscounted
    lengths: NDArray[np.int64]  # (E,)


def play(environment: str, player: Player, episodes: int, seed: int) -> Played:
    """Play `episodes` whole episodes, seeded `seed`, `seed + 1`, ...; until each ends or is truncated."""
    stage = [simulators.make(environment) for _ in range(episodes)]
    seen = [env.reset(seed=seed + number)[0] for number, env in enumerate(stage)]
    returns, lengths = np.zeros(episodes), np.zeros(episodes, dtype=np.int64)
    running = list(range(episodes))
    player.begin(episodes)
    while running:
        rows = torch.tensor(running)
        observations = torch.from_numpy(np.stack([seen[number] for number in running]).astype(np.float32))
        actions = player.act(rows, observations).numpy()
        rewards, left = np.zeros(len(running)), []
        for place, (number, action) in enumerate(zip(running, actions, strict=True)):
            seen[number], reward, terminated, truncated, _ = stage[number].step(action)
            rewards[place] = reward
            lengths[number] += 1
            if not (terminated or truncated):
                left.append(number)
        returns[running] += rewards
        player.observe(rows, torch.from_numpy(rewards.astype(np.float32)))
        running = left
    for env in stage:
        env.close()
    return Played(returns, lengths)
