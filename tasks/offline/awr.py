"""Advantage-weighted regression on a data set."""

from pathlib import Path

import torch
from pydantic import Field

from tasks.algorithms.offline import awr
from tasks.algorithms.offline.adam import Adam
from tasks.offline.datasets.stored import Recording
from tasks.offline.training import learners
from tasks.offline.training.learners import DataSets, Learner, LearnerConfig
from tasks.stage import Metrics, Sizes, main


class AwrConfig(LearnerConfig):
    """The weights, the returns that they are made of, and the networks."""

    datasets: DataSets
    gamma: float = Field(gt=0, le=1)
    lam: float = Field(ge=0, le=1)  # of the returns: 0 is one step and then the value, 1 all recorded rewards
    beta: float = Field(gt=0)  # in deviations of the advantage; small trusts the best actions only
    max_weight: float = Field(gt=0)
    refresh_every: int = Field(ge=1, le=10**9)  # steps between two valuations of the data set
    hidden: Sizes
    learning_rate: float = Field(gt=0)  # of the policy
    value_learning_rate: float = Field(gt=0)


def run(config: AwrConfig, transitions: Path, out: Path) -> Metrics:
    """Train with every seed; policies and curves go to `out`."""

    def build(recording: Recording, seed: int, generator: torch.Generator) -> Learner:
        data = recording.transitions
        agent = awr.Agent(recording.spaces, config.hidden, data).to(data.device)
        optimizers = {
            "policy": Adam(agent.policy.parameters(), config.learning_rate),
            "value": Adam(agent.value.parameters(), config.value_learning_rate),
        }
        settings = awr.Settings(config.gamma, config.lam, config.beta, config.max_weight, config.refresh_every)
        steps = awr.fit(agent, optimizers, data, settings, batch_size=config.batch_size, generator=generator)
        return Learner(agent.policy, {"agent": agent, **optimizers}, steps)

    return learners.run("awr", config, transitions, out, {"AWR": build})


if __name__ == "__main__":
    main(run)
