"""Learning in an environment: it is explored at random by a share epsilon of the steps, and what happens there fills a replay memory.

With hindsight each episode is added again at its end, with other goals (hindsight.py).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tasks.algorithms.offline import hindsight
from tasks.algorithms.offline.hindsight import Hindsight
from tasks.algorithms.offline.networks.mlp import MeanAction, QValues
from tasks.algorithms.offline.replay import Replay
from tasks.algorithms.offline.transitions import Batch
from tasks.offline.configs.learners import ExplorationConfig
from tasks.offline.environments import simulators

EPISODES = 100_000_000  # seeds of episodes that each seed of a learner has to itself


class Step(NamedTuple):
    """One step of the episode so far; observations are the environment's own."""

    observation: Tensor
    action: Tensor
    reward: float
    following: Tensor
    terminated: bool


class Explorer:
    """One environment, played on and on by a policy that learns; a policy of continuous actions plays them with noise.

    The memory has what the learner's networks take: observations normalised for Q-values of discrete actions, whose layers are
    called by themselves, and the environment's own otherwise. Episodes are reset with `seed`, `seed` + 1, .. so that with the same
    actions the same happens: a state that was saved in the middle of an episode is reached again by playing it.
    """

    def __init__(
        self,
        environment: str,
        policy: QValues | MeanAction,
        config: ExplorationConfig,
        seed: int,
        generator: torch.Generator,
        relabelling: Hindsight | None = None,
        noise: float = 0.0,
    ) -> None:
        self.env, self.policy, self.config, self.generator = simulators.make(environment), policy, config, generator
        self.hindsight, self.noise, self.played = relabelling, noise, 0
        self.taken: Callable[[Tensor], Tensor] = policy.normaliser if policy.spaces.discrete else nn.Identity()
        self.device = policy.normaliser.mean.device
        self.replay = Replay(policy.spaces, config.replay, self.device)
        self.seed, self.episode = seed, list[Step]()
        self.observation = self._reset()

    def batches(self, size: int) -> Iterator[Batch]:
        """Batches from the memory, without end; the environment goes on by some steps before each."""
        while self.played < self.config.warmup:
            self._step(self._random())
        while True:
            for _ in range(self.config.steps):
                explores = torch.rand((), generator=self.generator) < self.epsilon()
                self._step(self._random() if explores else self._noisy(self.policy.act(self.observation)))
            yield self.replay.batch(size, self.generator)

    def epsilon(self) -> float:
        """The share of random actions at present."""
        config, annealed = self.config, min(1.0, self.played / self.config.last_from)
        return config.first_epsilon + annealed * (config.last_epsilon - config.first_epsilon)

    def state_dict(self) -> dict[str, Tensor]:
        """The memory, and the episode so far."""
        none = self.replay.columns.actions[:0]
        actions = torch.stack([step.action for step in self.episode]) if self.episode else none
        episode = {"seed": torch.tensor(self.seed), "actions_played": actions, "played": torch.tensor(self.played)}
        return {**episode, **self.replay.state_dict()}

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> None:
        """Take up what `state_dict` gave: play the episode again up to where it stood."""
        self.replay.load_state_dict(state)
        self.seed, self.played = int(state["seed"]), int(state["played"])
        self.observation = self._reset()
        for action in state["actions_played"]:
            self._move(action)

    def _random(self) -> Tensor:
        spaces = self.policy.spaces
        if spaces.discrete:
            return torch.randint(spaces.action, (), generator=self.generator).to(self.device)
        return (2 * torch.rand(spaces.action, generator=self.generator) - 1).to(self.device)

    def _noisy(self, action: Tensor) -> Tensor:
        if self.policy.spaces.discrete:
            return action
        drawn = torch.randn(action.shape, generator=self.generator).to(self.device)
        return (action + self.noise * drawn).clamp(-1, 1)

    def _step(self, action: Tensor) -> None:
        step, truncated = self._move(action)
        before, after = self.taken(torch.stack([step.observation, step.following]))
        self.replay.add(before, action, step.reward, after, step.terminated)
        self.played += 1
        if step.terminated or truncated:
            if self.hindsight is not None:
                self._add_in_hindsight(self.hindsight)
            self.seed += 1
            self.observation = self._reset()

    def _move(self, action: Tensor) -> tuple[Step, bool]:
        """What the action led to, and whether the episode was cut off there."""
        observation, reward, terminated, truncated, _ = self.env.step(action.cpu().numpy())
        following = self._tensor(observation)
        self.episode.append(Step(self.observation, action, reward, following, terminated))
        self.observation = following
        return self.episode[-1], truncated

    def _add_in_hindsight(self, relabelling: Hindsight) -> None:
        """The episode that has ended once more for each copy."""
        observations, actions, rewards, following, terminated = zip(*self.episode, strict=True)
        earned, ended = (torch.tensor(column, device=self.device) for column in (rewards, terminated))
        whole = Batch(torch.stack(observations), torch.stack(actions), earned, torch.stack(following), ended)
        for copy in hindsight.copies(whole, relabelling, self.generator):
            before, after = self.taken(copy.observations), self.taken(copy.next_observations)
            self.replay.extend(replace(copy, observations=before, next_observations=after))

    def _reset(self) -> Tensor:
        self.episode = []
        return self._tensor(self.env.reset(seed=self.seed)[0])

    def _tensor(self, observation: Any) -> Tensor:
        return torch.from_numpy(observation).to(self.device)
