"""Learning in an environment: it is played, a share of the steps at random, and what happens there fills a replay
memory.

With hindsight each episode is added again at its end, with other goals (hindsight.py). Fine-tuning learns from a data
set first, and then from it and from what was played since.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tasks.algorithms.offline import hindsight
from tasks.algorithms.offline.hindsight import Hindsight
from tasks.algorithms.offline.replay import ReplayBuffer
from tasks.algorithms.offline.transition_tensors import (
    Referenced,
    TransitionBatch,
    Transitions,
    concatenate_batches,
    merge_batches_by_mask,
)
from tasks.offline.configs.learners import RELABEL, ExplorationConfig, FineTuningConfig
from tasks.offline.environments import simulators

Act = Callable[[Tensor], Tensor]
EPISODES = 100_000_000  # seeds of episodes that each seed of a learner has to itself


def return_unchanged(observations: Tensor) -> Tensor:
    """The environment's own observations."""
    return observations


def build_hindsight(environment: str, relabel: RELABEL, copies: int) -> Hindsight | None:
    """What a variant's `relabel` asks for; DataError with one line where the environment has no goals."""
    return None if relabel == "none" else Hindsight(simulators.build_environment_goals(environment), relabel, copies)


class EpisodeStep(NamedTuple):
    """One step of the episode so far; observations are the environment's own."""

    observation: Tensor
    action: Tensor
    reward: float
    following: Tensor
    terminated: bool


class Explorer:
    """One environment, played on and on by a policy that learns.

    `act` is what is played in an observation (O,), and `preprocess` makes of observations (.., O) what the memory keeps
    of them, which is what the learner's networks take. With a `gamma` it keeps the discounted returns-to-go of episodes
    that have ended by themselves. Episodes are reset with `seed`, `seed` + 1, .. so that with the same actions the same
    happens: a state that was saved in the middle of an episode is reached again by playing it.
    """

    def __init__(
        self,
        environment: str,
        act: Act,
        config: ExplorationConfig,
        seed: int,
        generator: torch.Generator,
        device: torch.device,
        *,
        preprocess: Act = return_unchanged,
        relabelling: Hindsight | None = None,
        gamma: float | None = None,
    ) -> None:
        self.env = simulators.make_offline_environment(environment)
        self.spaces = simulators.get_policy_spaces(environment)
        self.act = act
        self.preprocess = preprocess
        self.config = config
        self.generator = generator
        self.hindsight = relabelling
        self.gamma = gamma
        self.played = 0
        self.device = device
        self.replay = ReplayBuffer(self.spaces, config.replay, device)
        self.seed = seed
        self.episode = list[EpisodeStep]()
        self.observation = self._reset_environment()

    def batches(self, size: int, *, replay: bool = True) -> Iterator[TransitionBatch]:
        """Batches from the memory, or without `replay` of the last steps, without end; the environment goes on by some
        steps before each.
        """
        while self.played < self.config.warmup:
            self._step_and_record(self._draw_random_action())
        while True:
            self.play()
            yield self.replay.batch(size, self.generator) if replay else self.replay.latest(size)

    def play(self) -> None:
        """The steps in the environment that belong to one gradient step."""
        for _ in range(self.config.steps):
            explores = torch.rand((), generator=self.generator) < self.epsilon()
            self._step_and_record(self._draw_random_action() if explores else self.act(self.observation))

    def epsilon(self) -> float:
        """The share of random actions at present."""
        config = self.config
        annealed = min(1.0, self.played / self.config.last_from)
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
        self.seed = int(state["seed"])
        self.played = int(state["played"])
        self.observation = self._reset_environment()
        for action in state["actions_played"].to(self.device, copy=True):
            self._step_environment(action)

    def _draw_random_action(self) -> Tensor:
        size = self.spaces.action
        if self.spaces.discrete:
            return torch.randint(size, (), generator=self.generator).to(self.device)
        return (2 * torch.rand(size, generator=self.generator) - 1).to(self.device)

    def _step_and_record(self, action: Tensor) -> None:
        step, truncated = self._step_environment(action)
        before, after = self.preprocess(torch.stack([step.observation, step.following]))
        self.replay.add(before, action, step.reward, after, step.terminated)
        self.played += 1
        if step.terminated or truncated:
            if self.gamma is not None and step.terminated:
                self.replay.set_references(self._compute_returns_to_go(self.gamma))
            if self.hindsight is not None:
                self._add_relabelled_episodes(self.hindsight)
            self.seed += 1
            self.observation = self._reset_environment()

    def _step_environment(self, action: Tensor) -> tuple[EpisodeStep, bool]:
        """What the action led to, and whether the episode was cut off there."""
        observation, reward, terminated, truncated, _ = self.env.step(action.cpu().numpy())
        following = self._convert_to_tensor(observation)
        self.episode.append(EpisodeStep(self.observation, action, reward, following, terminated))
        self.observation = following
        return self.episode[-1], truncated

    def _add_relabelled_episodes(self, relabelling: Hindsight) -> None:
        """The episode that has ended once more for each copy."""
        observations, actions, rewards, following, terminated = zip(*self.episode, strict=True)
        earned, ended = (torch.tensor(column).to(self.device) for column in (rewards, terminated))
        whole = TransitionBatch(torch.stack(observations), torch.stack(actions), earned, torch.stack(following), ended)
        for copy in hindsight.iterate_relabelled_copies(whole, relabelling, self.generator):
            before = self.preprocess(copy.observations)
            after = self.preprocess(copy.next_observations)
            self.replay.extend(replace(copy, observations=before, next_observations=after))

    def _compute_returns_to_go(self, gamma: float) -> Tensor:
        """What the episode so far earned from each of its steps on: (T,)."""
        earned = accumulate(
            reversed([step.reward for step in self.episode]), lambda rest, reward: reward + gamma * rest
        )
        return torch.tensor([*earned][::-1]).to(self.device)

    def _reset_environment(self) -> Tensor:
        self.episode = []
        return self._convert_to_tensor(self.env.reset(seed=self.seed)[0])

    def _convert_to_tensor(self, observation: Any) -> Tensor:
        return torch.from_numpy(observation).to(self.device)


def build_exploration_config(tuning: FineTuningConfig, epsilon: float = 0.0) -> ExplorationConfig:
    """How a variant plays that goes on online: a share `epsilon` of its actions at random, from the first step on."""
    return ExplorationConfig(
        replay=tuning.replay, warmup=1, steps=tuning.steps, first_epsilon=epsilon, last_epsilon=epsilon, last_from=1
    )


class FineTuning:
    """Batches of a data set for `after` steps, and from then on of it and of what the explorer has played since.

    `share` of each batch is then of what was played; with None both are one heap, from which rows are drawn uniformly.
    `reference` (N,) is what was earned from each transition of the data set on.
    """

    def __init__(
        self,
        data: Transitions,
        explorer: Explorer,
        after: int,
        share: float | None = None,
        reference: Tensor | None = None,
    ) -> None:
        self.data = data
        self.explorer = explorer
        self.after = after
        self.share = share
        self.drawn = 0
        self.reference = torch.full_like(data.rewards, -inf) if reference is None else reference

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Referenced]:
        """Batches of `size` transitions, without end."""
        while True:
            self.drawn += 1
            if self.drawn <= self.after:
                yield self._get_recorded_rows(torch.randint(len(self.data), (size,), generator=generator))
                continue
            self.explorer.play()
            yield self._draw_mixed_batch(size, generator)

    def _draw_mixed_batch(self, size: int, generator: torch.Generator) -> Referenced:
        recorded = len(self.data)
        replay = self.explorer.replay
        if self.share is None:
            rows = torch.randint(recorded + replay.kept, (size,), generator=generator)
            first = (rows < recorded).to(self.data.device)
            return merge_batches_by_mask(
                first,
                self._get_recorded_rows(rows.clamp(max=recorded - 1)),
                self._get_replay_rows(rows.sub(recorded).clamp(min=0)),
            )
        played = min(max(1, round(self.share * size)), max(1, size - 1))
        of_data = torch.randint(recorded, (size - played,), generator=generator)
        return concatenate_batches(
            self._get_recorded_rows(of_data),
            self._get_replay_rows(torch.randint(replay.kept, (played,), generator=generator)),
        )

    def _get_recorded_rows(self, rows: Tensor) -> Referenced:
        rows = rows.to(self.data.device)
        return Referenced.of(self.data.rows(rows), self.reference[rows])

    def _get_replay_rows(self, rows: Tensor) -> Referenced:
        return self.explorer.replay.rows(rows.to(self.data.device))

    def state_dict(self) -> dict[str, Tensor]:
        """The steps so far, and all of the explorer."""
        return {"drawn": torch.tensor(self.drawn), **self.explorer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> None:
        """Load what `state_dict` returned."""
        self.drawn = int(state["drawn"])
        self.explorer.load_state_dict({name: tensor for name, tensor in state.items() if name != "drawn"})
