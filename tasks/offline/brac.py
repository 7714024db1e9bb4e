"""Behaviour-regularised actor-critic with a value penalty (BRAC-v) on a data set."""

from pathlib import Path

import torch
from pydantic import Field

from tasks.algorithms.offline import brac
from tasks.algorithms.offline.adam import Adam
from tasks.offline.datasets.stored import Recording
from tasks.offline.training import learners
from tasks.offline.training.learners import DataSets, Learner, LearnerConfig
from tasks.stage import Metrics, Sizes, main


class BracConfig(LearnerConfig):
    """The penalty, and the networks."""

    datasets: DataSets
    gamma: float = Field(gt=0, lt=1)
    alpha: float = Field(ge=0)  # value that one nat away from the behaviour costs
    target_rate: float = Field(gt=0, le=1)  # of the way that the target critics move in a step
    warmup: int = Field(ge=0, le=10**9)  # steps in which the policy only follows the cloned behaviour
    critics: int = Field(ge=1, le=100)
    hidden: Sizes
    learning_rate: float = Field(gt=0)  # of the policy and the clone
    critic_learning_rate: float = Field(gt=0)


def run(config: BracConfig, transitions: Path, out: Path) -> Metrics:
    """Train with every seed; policies and curves go to `out`."""

    def build(recording: Recording, seed: int, generator: torch.Generator) -> Learner:
        data = recording.transitions
        agent = brac.Agent(recording.spaces, config.hidden, config.critics, data.observations).to(data.device)
        optimizers = {
            "clone": Adam(agent.clone.parameters(), config.learning_rate),
            "critics": Adam(agent.critics.parameters(), config.critic_learning_rate),
            "policy": Adam(agent.policy.parameters(), config.learning_rate),
        }
        settings = brac.Settings(config.gamma, config.alpha, config.target_rate, config.warmup)
        steps = brac.fit(agent, optimizers, data, settings, batch_size=config.batch_size, generator=generator)
        return Learner(agent.policy, {"agent": agent, **optimizers}, steps)

    return learners.run("brac", config, transitions, out, {"BRAC-v": build})


if __name__ == "__main__":
    main(run)
