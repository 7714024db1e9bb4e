"""Learning in an environment: it is explored epsilon-greedily, and what happens there fills a replay memory."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from tasks.algorithms.offline.networks.mlp import QValues
from tasks.algorithms.offline.replay import Replay
from tasks.algorithms.offline.transitions import Batch
from tasks.offline.configs.learners import ExplorationConfig
from tasks.offline.environments import simulators


class Explorer:
    """One environment, played on and on by a policy that learns; the observations in the memory are normalised as the policy does it.

    Episodes are reset with `seed`, `seed` + 1, .. so that with the same actions the same happens: a state that was saved in
    the middle of an episode is reached again by playing it.
    """

    def __init__(
        self, environment: str, policy: QValues, config: ExplorationConfig, seed: int, generator: torch.Generator
    ) -> None:
        self.env, self.policy, self.config, self.generator = simulators.make(environment), policy, config, generator
        self.device = policy.normaliser.mean.device
        self.replay = Replay(policy.spaces, config.replay, self.device)
        self.seed, self.actions = seed, list[int]()
        self.observation = self._reset()

    def batches(self, size: int) -> Iterator[Batch]:
        """Batches from the memory, without end; the environment goes on by some steps before each."""
        while self.replay.added < self.config.warmup:
            self._step(self._random())
        while True:
            for _ in range(self.config.steps):
                explores = torch.rand((), generator=self.generator) < self.epsilon()
                self._step(self._random() if explores else int(self.policy.act(self.observation)))
            yield self.replay.batch(size, self.generator)

    def epsilon(self) -> float:
        """The share of random actions at present."""
        config, annealed = self.config, min(1.0, self.replay.added / self.config.last_from)
        return config.first_epsilon + annealed * (config.last_epsilon - config.first_epsilon)

    def state_dict(self) -> dict[str, Tensor]:
        """The memory, and the episode so far."""
        episode = {"seed": torch.tensor(self.seed), "played": torch.tensor(self.actions, dtype=torch.long)}
        return {**episode, **self.replay.state_dict()}

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> None:
        """Take up what `state_dict` gave: play the episode again up to where it stood."""
        self.replay.load_state_dict(state)
        self.seed, self.actions = int(state["seed"]), state["played"].tolist()
        self.observation = self._reset()
        for action in self.actions:
            self.observation = self._tensor(self.env.step(action)[0])

    def _random(self) -> int:
        return int(torch.randint(self.policy.spaces.action, (), generator=self.generator))

    def _step(self, action: int) -> None:
        observation, reward, terminated, truncated, _ = self.env.step(action)
        following = self._tensor(observation)
        before, after = self.policy.normaliser(torch.stack([self.observation, following]))
        self.replay.add(before, action, reward, after, terminated)
        self.actions.append(action)
        self.observation = following
        if terminated or truncated:
            self.seed, self.actions = self.seed + 1, []
            self.observation = self._reset()

    def _reset(self) -> Tensor:
        return self._tensor(self.env.reset(seed=self.seed)[0])

    def _tensor(self, observation: Any) -> Tensor:
        return torch.from_numpy(observation).to(self.device)
