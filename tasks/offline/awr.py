"""Advantage-weighted regression on a data set."""

from pathlib import Path

import torch

from tasks.algorithms.offline import awr
from tasks.algorithms.offline.adam import Adam
from tasks.common.config import build_settings
from tasks.offline.configs.awr import AwrConfig
from tasks.offline.datasets.dataset_files import StoredDataset
from tasks.offline.training import learners
from tasks.offline.training.learners import Learner
from tasks.stage import Metrics, main

CURVES = {**awr.METRICS, **learners.METRICS}
METRICS = {f"VARIANT/{name}": text for name, text in {**learners.STEP, **CURVES}.items()}


def run(config: AwrConfig, transitions: Path, out: Path) -> Metrics:
    """Train with every seed; policies and curves go to `out`."""

    def build(dataset: StoredDataset, seed: int, generator: torch.Generator) -> Learner:
        data = dataset.transitions
        agent = awr.AWRAgent(dataset.spaces, config.hidden, data).to(data.device)
        optimizers = {
            "policy": Adam(agent.policy.parameters(), config.learning_rate),
            "value": Adam(agent.value.parameters(), config.value_learning_rate),
        }
        settings = build_settings(config, awr.AwrSettings)
        steps = awr.fit(agent, optimizers, data, settings, batch_size=config.batch_size, generator=generator)
        return Learner(agent.policy, {"agent": agent, **optimizers}, steps)

    return learners.train_all_variants("awr", config, transitions, out, {config.variant: build})


if __name__ == "__main__":
    main(run)
