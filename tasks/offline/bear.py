"""Bootstrapping error accumulation reduction (BEAR) on a data set of continuous actions."""

from pathlib import Path

import torch
from pydantic import Field

from tasks.algorithms.offline import bear
from tasks.algorithms.offline.adam import Adam
from tasks.offline.datasets.stored import Recording
from tasks.offline.training import learners
from tasks.offline.training.learners import DataSets, Learner, LearnerConfig
from tasks.stage import Metrics, Sizes, main


class BearConfig(LearnerConfig):
    """The constraint, the target, and the networks."""

    datasets: DataSets
    gamma: float = Field(gt=0, lt=1)
    lam: float = Field(ge=0, le=1)  # weight of the lowest critic in the target, against the highest
    target_samples: int = Field(ge=1, le=1000)  # actions that the target takes the best of
    kernel: bear.Kernel  # of the maximum mean discrepancy
    bandwidth: float = Field(gt=0)
    mmd_samples: int = Field(ge=1, le=1000)  # actions of policy and behaviour, each
    threshold: float = Field(ge=0)  # on the discrepancy
    target_rate: float = Field(gt=0, le=1)  # of the way that the targets move in a step
    warmup: int = Field(ge=0, le=10**9)  # steps in which the policy only follows the behaviour
    critics: int = Field(ge=1, le=100)
    hidden: Sizes
    learning_rate: float = Field(gt=0)  # of the policy
    critic_learning_rate: float = Field(gt=0)  # and of the behaviour model
    multiplier_learning_rate: float = Field(gt=0)


def run(config: BearConfig, transitions: Path, out: Path) -> Metrics:
    """Train with every seed; policies and curves go to `out`. SystemExit with one line for discrete actions."""

    def build(recording: Recording, seed: int, generator: torch.Generator) -> Learner:
        data = recording.transitions
        if recording.spaces.discrete:
            raise SystemExit(f"bear: data set {recording.name}: BEAR is for continuous actions, these are discrete")
        agent = bear.Agent(recording.spaces, config.hidden, config.critics, data.observations).to(data.device)
        optimizers = {
            "behaviour": Adam(agent.behaviour.parameters(), config.critic_learning_rate),
            "critics": Adam(agent.critics.parameters(), config.critic_learning_rate),
            "policy": Adam(agent.policy.parameters(), config.learning_rate),
            "multiplier": Adam([agent.log_multiplier], config.multiplier_learning_rate),
        }
        settings = bear.Settings(
            gamma=config.gamma,
            lam=config.lam,
            target_samples=config.target_samples,
            kernel=config.kernel,
            bandwidth=config.bandwidth,
            mmd_samples=config.mmd_samples,
            threshold=config.threshold,
            target_rate=config.target_rate,
            warmup=config.warmup,
        )
        steps = bear.fit(agent, optimizers, data, settings, batch_size=config.batch_size, generator=generator)
        return Learner(agent.policy, {"agent": agent, **optimizers}, steps)

    return learners.run("bear", config, transitions, out, {"BEAR": build})


if __name__ == "__main__":
    main(run)
