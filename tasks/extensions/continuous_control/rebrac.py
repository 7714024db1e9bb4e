"""ReBRAC, which is TD3+BC with a second penalty and layer normalisation, on a data set."""

from pathlib import Path

import torch

from tasks.algorithms.offline.adam import Adam
from tasks.common.config import build_settings
from tasks.extensions.continuous_control.algorithms import rebrac, td3
from tasks.extensions.continuous_control.configs.rebrac import RebracConfig
from tasks.offline.datasets.dataset_files import StoredDataset
from tasks.offline.training import learners
from tasks.offline.training.learners import Learner
from tasks.stage import Metrics, main

CURVES = {**rebrac.METRICS, **learners.METRICS}
METRICS = {f"VARIANT/{name}": text for name, text in {**learners.STEP, **CURVES}.items()}


def run(config: RebracConfig, transitions: Path, out: Path) -> Metrics:
    """Train with every seed; policies and curves go to `out`. DataError with one line for discrete actions."""

    def build(dataset: StoredDataset, seed: int, generator: torch.Generator) -> Learner:
        data = dataset.continuous("rebrac", config.variant)
        sizes = (config.hidden, config.critics, data.observations, config.layer_norm)
        agent = td3.TD3Agent(dataset.spaces, *sizes).to(data.device)
        optimizers = {
            "critics": Adam(agent.critics.parameters(), config.critic_learning_rate),
            "policy": Adam(agent.policy.parameters(), config.learning_rate),
        }
        settings = build_settings(config, rebrac.RebracSettings)
        steps = rebrac.fit(agent, optimizers, data, settings, batch_size=config.batch_size, generator=generator)
        return Learner(agent.policy, {"agent": agent, **optimizers}, steps)

    return learners.train_all_variants("rebrac", config, transitions, out, {config.variant: build})


if __name__ == "__main__":
    main(run, flow="offline")
