"""Bootstrapping error accumulation reduction (BEAR) on a data set of continuous actions."""

from pathlib import Path

import torch

from tasks.algorithms.offline.adam import Adam
from tasks.common.config import build_settings
from tasks.extensions.continuous_control.algorithms import bear
from tasks.extensions.continuous_control.configs.bear import BearConfig
from tasks.offline.datasets.dataset_files import StoredDataset
from tasks.offline.training import learners
from tasks.offline.training.learners import Learner
from tasks.stage import Metrics, main

CURVES = {**bear.METRICS, **learners.METRICS}
METRICS = {f"VARIANT/{name}": text for name, text in {**learners.STEP, **CURVES}.items()}


def run(config: BearConfig, transitions: Path, out: Path) -> Metrics:
    """Train with every seed; policies and curves go to `out`. DataError with one line for discrete actions."""

    def build(dataset: StoredDataset, seed: int, generator: torch.Generator) -> Learner:
        data = dataset.continuous("bear", config.variant)
        agent = bear.BEARAgent(dataset.spaces, config.hidden, config.critics, data.observations).to(data.device)
        optimizers = {
            "behaviour": Adam(agent.behaviour.parameters(), config.critic_learning_rate),
            "critics": Adam(agent.critics.parameters(), config.critic_learning_rate),
            "policy": Adam(agent.policy.parameters(), config.learning_rate),
            "multiplier": Adam([agent.log_multiplier], config.multiplier_learning_rate),
        }
        settings = build_settings(config, bear.BearSettings)
        steps = bear.fit(agent, optimizers, data, settings, batch_size=config.batch_size, generator=generator)
        return Learner(agent.policy, {"agent": agent, **optimizers}, steps)

    return learners.train_all_variants("bear", config, transitions, out, {config.variant: build})


if __name__ == "__main__":
    main(run, flow="offline")
