"""What PPO is trained on: some environments side by side, played on and on; all whole episodes are kept as a replay
buffer.
"""

import numpy as np
import torch

from tasks.algorithms.offline.behaviour import Rollout
from tasks.algorithms.offline.networks.actors import Behaviour
from tasks.offline.datasets.episodes import Episode, make_episode
from tasks.offline.environments import simulators


class VectorCollector:
    """`count` copies of an environment; a copy whose episode has ended begins the next one.

    Every ended episode is kept.
    """

    def __init__(self, environment: str, count: int, seed: int) -> None:
        self.scenes = [simulators.make_offline_environment(environment) for _ in range(count)]
        self.observations = [[scene.reset(seed=seed + number)[0]] for number, scene in enumerate(self.scenes)]
        self.actions: list[list[np.ndarray]] = [[] for _ in self.scenes]
        self.rewards: list[list[float]] = [[] for _ in self.scenes]
        self.steps = 0  # of all copies together
        self.replay: list[tuple[int, Episode]] = []  # steps until its end, and the episode

    def collect(self, policy: Behaviour, steps: int, generator: torch.Generator) -> Rollout:
        """`steps` steps in each of them with the policy's random actions."""
        rows = [self._step_all_copies(policy, generator) for _ in range(steps)]
        return Rollout(*(torch.stack(column) for column in zip(*rows, strict=True)))

    def _step_all_copies(self, policy: Behaviour, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        """One step in each: the row of a Rollout."""
        observations = torch.from_numpy(np.stack([seen[-1] for seen in self.observations]))
        actions = policy.sample(observations, generator)
        executed = (actions if policy.spaces.discrete else actions.clamp(-1, 1)).numpy()
        self.steps += len(self.scenes)
        after = []
        rewards = []
        ends = []
        for number, (scene, action) in enumerate(zip(self.scenes, executed, strict=True)):
            observation, reward, terminated, truncated, _ = scene.step(action)
            after.append(observation)
            rewards.append(reward)
            ends.append((terminated, terminated or truncated))
            self.observations[number].append(observation)
            self.actions[number].append(action)
            self.rewards[number].append(reward)
            if terminated or truncated:
                self._finish_episode(number, terminated)
        terminations, ended = torch.tensor(ends).T
        return observations, actions, torch.tensor(rewards), torch.from_numpy(np.stack(after)), terminations, ended

    def _finish_episode(self, number: int, terminated: bool) -> None:
        """Keep the episode that ended there, and begin the next."""
        ended = make_episode(self.observations[number], self.actions[number], self.rewards[number], terminated)
        self.replay.append((self.steps, ended))
        self.observations[number] = [self.scenes[number].reset()[0]]
        self.actions[number] = []
        self.rewards[number] = []

    def list_episodes_ended_by(self, steps: int) -> list[Episode]:
        """The episodes that had ended when `steps` steps were played, in the order of their ends; none in part."""
        return [finished for end, finished in self.replay if end <= steps]

    def close(self) -> None:
        """Let go of the environments."""
        for scene in self.scenes:
            scene.close()
