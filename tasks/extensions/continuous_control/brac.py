"""Behaviour-regularised actor-critic with a value penalty (BRAC-v) on a data set."""

from pathlib import Path

import torch

from tasks.algorithms.offline.adam import Adam
from tasks.common.config import build_settings
from tasks.extensions.continuous_control.algorithms import brac
from tasks.extensions.continuous_control.configs.brac import BracConfig
from tasks.offline.datasets.dataset_files import StoredDataset
from tasks.offline.training import learners
from tasks.offline.training.learners import Learner
from tasks.stage import Metrics, main

CURVES = {**brac.METRICS, **learners.METRICS}
METRICS = {f"VARIANT/{name}": text for name, text in {**learners.STEP, **CURVES}.items()}


def run(config: BracConfig, transitions: Path, out: Path) -> Metrics:
    """Train with every seed; policies and curves go to `out`."""

    def build(dataset: StoredDataset, seed: int, generator: torch.Generator) -> Learner:
        data = dataset.transitions
        agent = brac.BRACAgent(dataset.spaces, config.hidden, config.critics, data.observations).to(data.device)
        optimizers = {
            "clone": Adam(agent.clone.parameters(), config.learning_rate),
            "critics": Adam(agent.critics.parameters(), config.critic_learning_rate),
            "policy": Adam(agent.policy.parameters(), config.learning_rate),
        }
        settings = build_settings(config, brac.BracSettings)
        steps = brac.fit(agent, optimizers, data, settings, batch_size=config.batch_size, generator=generator)
        return Learner(agent.policy, {"agent": agent, **optimizers}, steps)

    return learners.train_all_variants("brac", config, transitions, out, {config.variant: build})


if __name__ == "__main__":
    main(run, flow="offline")
