"""Playing whole episodes in an environment, many at once, with a policy that may remember what it has seen.

Episode i is reset with `seed + i` and played once, in an environment of its own: its result depends neither on the
number of episodes nor on how long the others last, as it would where environments are reset in place.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tasks.offline.datasets.episodes import Episode, make_episode
from tasks.offline.environments import simulators

EVALUATION_SEED = 1_000_000  # of the episodes that a stage plays while it learns; the stage `returns` plays others


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
        """The rewards (M,) of the last actions."""
        ...


class Forgetful:
    """A memoryless policy as a player; it acts on the device where its weights are."""

    def __init__(self, policy: Memoryless) -> None:
        tensors = policy.state_dict().values() if isinstance(policy, nn.Module) else ()
        self.policy = policy
        self.device = next((tensor.device for tensor in tensors), torch.device("cpu"))

    def begin(self, episodes: int) -> None:
        """Nothing to forget."""

    def act(self, running: Tensor, observations: Tensor) -> Tensor:
        """The policy's actions."""
        return self.policy.act(observations.to(self.device)).cpu()

    def observe(self, running: Tensor, rewards: Tensor) -> None:
        """Nothing to remember."""


@runtime_checkable
class Targeted(Protocol):
    """A policy that is asked for a return, and tries to reach it."""

    targets: list[float]

    def with_target(self, target: float) -> Player:
        """A player that is asked for this return."""
        ...


def wrap_as_player(policy: Memoryless | Player | Targeted) -> Player:
    """The policy as a player: asked for its first target if it has targets, as it is if it has a memory, else without a
    memory.
    """
    if isinstance(policy, Targeted):
        return policy.with_target(policy.targets[0])
    return policy if isinstance(policy, Player) else Forgetful(policy)


@dataclass(frozen=True)
class EpisodeOutcomes:
    """What E episodes came to."""

    episodes: list[Episode]
    unlimited: bool = False  # whether the environment has no limit of steps of its own

    @property
    def cut(self) -> NDArray[np.bool_]:
        """Whether each episode was cut off since the environment has no limit of its own: (E,)."""
        return self.truncated & (self.lengths >= simulators.LONGEST) & self.unlimited

    @property
    def initial(self) -> Tensor:
        """What each episode showed first: (E, O)."""
        return _stack_observations([episode.observations[0] for episode in self.episodes])

    @property
    def rewards(self) -> list[NDArray[np.floating]]:
        """E arrays, one reward a step."""
        return [episode.rewards for episode in self.episodes]

    @property
    def returns(self) -> NDArray[np.float64]:
        """Each episode's sum of rewards, undiscounted: (E,)."""
        return self.compute_discounted_returns(1.0)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Each episode's number of steps: (E,)."""
        return np.array([len(episode) for episode in self.episodes])

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """Whether each episode would have gone on: (E,)."""
        return np.array([episode.truncations[-1] for episode in self.episodes])

    def compute_discounted_returns(self, gamma: float) -> NDArray[np.float64]:
        """Each episode's sum of gamma^t r_t, from its first step on: (E,)."""
        return np.array([episode.rewards @ gamma ** np.arange(len(episode)) for episode in self.episodes])


def play_seeded_episodes(
    environment: str,
    player: Player,
    episodes: int,
    seed: int,
    watch: Callable[[simulators.Plain], None] | None = None,
    limit: int | None = None,
) -> EpisodeOutcomes:
    """Play `episodes` whole episodes, seeded `seed`, `seed + 1`, ...; each until it ends or is truncated.

    `limit` is the number of steps after which an episode is truncated, in the place of the environment's own. `watch`
    is called with the first episode's environment before its first step and after every step.
    """
    scenes = [simulators.make_offline_environment(environment, limit=limit) for _ in range(episodes)]
    seen = [[scene.reset(seed=seed + number)[0]] for number, scene in enumerate(scenes)]
    actions_taken: list[list[Any]] = [[] for _ in scenes]
    rewards: list[list[float]] = [[] for _ in scenes]
    ends = [False] * episodes  # by termination
    running = list(range(episodes))
    player.begin(episodes)
    if watch:
        watch(scenes[0])
    while running:
        rows = torch.tensor(running)
        actions = player.act(rows, _stack_observations([seen[number][-1] for number in running])).numpy()
        left = []
        for number, action in zip(running, actions, strict=True):
            observation, reward, terminated, truncated, _ = scenes[number].step(action)
            seen[number].append(observation)
            actions_taken[number].append(action)
            rewards[number].append(reward)
            ends[number] = terminated
            if watch and number == 0:
                watch(scenes[0])
            if not (terminated or truncated):
                left.append(number)
        player.observe(rows, torch.tensor([rewards[number][-1] for number in running]))
        running = left
    for scene in scenes:
        scene.close()
    played = [make_episode(*parts) for parts in zip(seen, actions_taken, rewards, ends, strict=True)]
    return EpisodeOutcomes(played, scenes[0].unlimited)


def _stack_observations(observations: list[NDArray[Any]]) -> Tensor:
    return torch.from_numpy(np.stack(observations).astype(np.float32))
