"""What PPO is trained on: some environments side by side, played on and on; whole episodes are kept as a replay buffer."""

import numpy as np
import torch

from tasks import simulators
from tasks.algorithms.offline.actors import Behaviour
from tasks.algorithms.offline.behaviour import Rollout
from tasks.episodes import Episode, episode


class Collector:
    """`count` copies of an environment; one that has ended begins anew. The first episodes to end are kept in `replay`.

    They are whole, and kept until they have `keep` steps between them.
    """

    def __init__(self, environment: str, count: int, seed: int, keep: int) -> None:
        self.scenes = [simulators.make(environment) for _ in range(count)]
        self.seen = [[scene.reset(seed=seed + number)[0]] for number, scene in enumerate(self.scenes)]
        self.done: list[list[np.ndarray]] = [[] for _ in self.scenes]
        self.brought: list[list[float]] = [[] for _ in self.scenes]
        self.replay: list[Episode] = []
        self.keep, self.kept = keep, 0

    def collect(self, policy: Behaviour, steps: int, generator: torch.Generator) -> Rollout:
        """`steps` steps in each of them with the policy's random actions."""
        rows = [self._step(policy, generator) for _ in range(steps)]
        return Rollout(*(torch.stack(column) for column in zip(*rows, strict=True)))

    def _step(self, policy: Behaviour, generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        """One step in each: the row of a Rollout."""
        observations = torch.from_numpy(np.stack([seen[-1] for seen in self.seen]))
        actions = policy.sample(observations, generator)
        executed = (actions if policy.spaces.discrete else actions.clamp(-1, 1)).numpy()
        after, rewards, ends = [], [], []
        for number, (scene, action) in enumerate(zip(self.scenes, executed, strict=True)):
            observation, reward, terminated, truncated, _ = scene.step(action)
            after.append(observation)
            rewards.append(reward)
            ends.append((terminated, terminated or truncated))
            self.seen[number].append(observation)
            self.done[number].append(action)
            self.brought[number].append(reward)
            if terminated or truncated:
                self._finish(number, terminated)
        terminations, ended = torch.tensor(ends).T
        return observations, actions, torch.tensor(rewards), torch.from_numpy(np.stack(after)), terminations, ended

    def _finish(self, number: int, terminated: bool) -> None:
        """Keep the episode that ended there, if wanted, and begin the next."""
        if self.kept < self.keep:
            self.replay.append(episode(self.seen[number], self.done[number], self.brought[number], terminated))
            self.kept += len(self.replay[-1])
        self.seen[number], self.done[number], self.brought[number] = [self.scenes[number].reset()[0]], [], []

    def close(self) -> None:
        """Let go of the environments."""
        for scene in self.scenes:
            scene.close()
