"""Deep Q-learning from a data set, or with exploration of the environment itself."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from pydantic import Field

from tasks.algorithms.offline import dqn
from tasks.offline.datasets.stored import Recording
from tasks.offline.training import learners, q_learning
from tasks.offline.training.learners import DataSets, Learner
from tasks.offline.training.online import ExplorationConfig, Explorer
from tasks.offline.training.q_learning import QConfig
from tasks.stage import Config, Idle, Metrics, Name, main

EPISODES = 100_000_000  # seeds of episodes that each seed has to itself


class Variant(Config):
    """One row of the table."""

    double: bool  # whether the online network selects the next action, which the target network values
    online: bool  # learns in the data set's environment, and not from the data set


class DqnConfig(QConfig):
    """How the network learns."""

    idle = (Idle(("exploration",), {"variants.*.online": (False,)}),)

    datasets: DataSets
    variants: dict[Name, Variant] = Field(min_length=1)
    exploration: ExplorationConfig  # for variants that learn online


def run(config: DqnConfig, transitions: Path, out: Path) -> Metrics:
    """Learn with every variant and seed; policies and curves go to `out`."""
    variants: dict[str, Callable[[Recording, int, torch.Generator], Learner]] = {
        name: partial(_build, config, variant) for name, variant in config.variants.items()
    }
    return learners.run("dqn", config, transitions, out, variants)


def _build(config: DqnConfig, variant: Variant, recording: Recording, seed: int, generator: torch.Generator) -> Learner:
    objective = partial(dqn.loss, gamma=config.gamma, double=variant.double, huber=config.loss == "huber")
    if not variant.online:
        return q_learning.offline(config, objective, recording, generator)
    policy = q_learning.network(config, recording)
    explorer = Explorer(recording.environment, policy, config.exploration, EPISODES * seed, generator)
    learner = q_learning.learner(config, objective, policy, explorer.batches(config.batch_size))
    return replace(learner, state={**learner.state, "explorer": explorer})


if __name__ == "__main__":
    main(run)
