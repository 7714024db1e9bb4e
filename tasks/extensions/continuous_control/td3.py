"""Twin delayed DDPG (TD3) in the environment of a data set, which it explores itself; with `relabel` in hindsight
(hindsight.py).
"""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from tasks.algorithms.offline.adam import Adam
from tasks.common.config import build_settings
from tasks.extensions.continuous_control.algorithms import td3
from tasks.extensions.continuous_control.configs.td3 import Td3Config, TD3Variant
from tasks.offline.datasets.dataset_files import StoredDataset
from tasks.offline.training import learners
from tasks.offline.training.learners import Learner
from tasks.offline.training.online import EPISODES, Explorer, build_hindsight
from tasks.stage import Metrics, main

CURVES = {**td3.METRICS, **learners.METRICS}
METRICS = {f"VARIANT/{name}": text for name, text in {**learners.STEP, **CURVES}.items()}


def run(config: Td3Config, transitions: Path, out: Path) -> Metrics:
    """Learn with every variant and seed; policies and curves go to `out`.

    DataError with one line for discrete actions.
    """
    variants: dict[str, Callable[[StoredDataset, int, torch.Generator], Learner]] = {
        name: partial(_build_learner, config, variant) for name, variant in config.variants.items()
    }
    return learners.train_all_variants("td3", config, transitions, out, variants)


def _build_learner(
    config: Td3Config, variant: TD3Variant, dataset: StoredDataset, seed: int, generator: torch.Generator
) -> Learner:
    data = dataset.continuous("td3", "TD3")
    hindsight = build_hindsight(dataset.environment, variant.relabel, config.relabelled)
    agent = td3.TD3Agent(dataset.spaces, config.hidden, config.critics, data.observations).to(data.device)
    noise = config.exploration_noise
    explorer = Explorer(
        dataset.environment,
        lambda seen: td3.sample_smoothed_actions(agent.policy, seen, noise, math.inf, generator),
        config.exploration,
        EPISODES * seed,
        generator,
        data.device,
        relabelling=hindsight,
    )
    optimizers = {
        "critics": Adam(agent.critics.parameters(), config.critic_learning_rate),
        "policy": Adam(agent.policy.parameters(), config.learning_rate),
    }
    settings = build_settings(config, td3.Td3Settings)
    batches = explorer.batches(config.batch_size)
    steps = td3.fit(agent, optimizers, batches, settings, td3.policy_loss, generator)
    return Learner(agent.policy, {"agent": agent, "explorer": explorer, **optimizers}, steps)


if __name__ == "__main__":
    main(run, flow="offline")
