"""Twin delayed DDPG with behaviour cloning (TD3+BC) on a data set."""

from functools import partial
from pathlib import Path

import torch

from tasks.algorithms.offline.adam import Adam
from tasks.common.config import build_settings
from tasks.extensions.continuous_control.algorithms import td3, td3_bc
from tasks.extensions.continuous_control.configs.td3_bc import Td3BcConfig
from tasks.offline.datasets.dataset_files import StoredDataset
from tasks.offline.training import learners
from tasks.offline.training.learners import Learner
from tasks.stage import Metrics, main

CURVES = {**td3_bc.METRICS, **learners.METRICS}
METRICS = {f"VARIANT/{name}": text for name, text in {**learners.STEP, **CURVES}.items()}


def run(config: Td3BcConfig, transitions: Path, out: Path) -> Metrics:
    """Train with every seed; policies and curves go to `out`. DataError with one line for discrete actions."""

    def build(dataset: StoredDataset, seed: int, generator: torch.Generator) -> Learner:
        data = dataset.continuous("td3_bc", config.variant)
        agent = td3.TD3Agent(dataset.spaces, config.hidden, config.critics, data.observations).to(data.device)
        optimizers = {
            "critics": Adam(agent.critics.parameters(), config.critic_learning_rate),
            "policy": Adam(agent.policy.parameters(), config.learning_rate),
        }
        settings = build_settings(config, td3.Td3Settings)
        loss = partial(td3_bc.policy_loss, alpha=config.alpha)
        steps = td3.fit(agent, optimizers, data.batches(config.batch_size, generator), settings, loss, generator)
        return Learner(agent.policy, {"agent": agent, **optimizers}, steps)

    return learners.train_all_variants("td3_bc", config, transitions, out, {config.variant: build})


if __name__ == "__main__":
    main(run, flow="offline")
