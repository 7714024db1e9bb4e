"""Implicit Q-learning (IQL) from a data set; a variant may go on in its environment."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from tasks.algorithms.offline import iql
from tasks.algorithms.offline.adam import Adam
from tasks.common.checkpoints import State
from tasks.common.config import build_settings
from tasks.offline.configs.iql import IqlConfig, IQLVariant
from tasks.offline.datasets.dataset_files import StoredDataset
from tasks.offline.training import learners
from tasks.offline.training.learners import Learner
from tasks.offline.training.online import EPISODES, Explorer, FineTuning, build_exploration_config
from tasks.stage import Metrics, main

CURVES = {**iql.METRICS, **learners.METRICS}
METRICS = {f"VARIANT/{name}": text for name, text in {**learners.STEP, **CURVES}.items()}


def run(config: IqlConfig, transitions: Path, out: Path) -> Metrics:
    """Train with every variant and seed; policies and curves go to `out`."""
    variants: dict[str, Callable[[StoredDataset, int, torch.Generator], Learner]] = {
        name: partial(_build_iql_learner, config, variant) for name, variant in config.variants.items()
    }
    return learners.train_all_variants("iql", config, transitions, out, variants)


def _build_iql_learner(
    config: IqlConfig, variant: IQLVariant, dataset: StoredDataset, seed: int, generator: torch.Generator
) -> Learner:
    data = dataset.transitions
    agent = iql.IQLAgent(dataset.spaces, config.hidden, config.critics, data.observations).to(data.device)
    optimizers = {
        "value": Adam(agent.value.parameters(), config.critic_learning_rate),
        "critics": Adam(agent.critics.parameters(), config.critic_learning_rate),
        "policy": Adam(agent.policy.parameters(), config.learning_rate),
    }
    settings = build_settings(config, iql.IqlSettings)
    state: State = {"agent": agent, **optimizers}
    if not variant.online:
        batches = data.batches(config.batch_size, generator)
        return Learner(agent.policy, state, iql.fit(agent, optimizers, batches, settings))
    fine_tuning = config.fine_tuning
    tuning = FineTuning(
        data, _make_explorer(config, agent, dataset, seed, generator), fine_tuning.after, fine_tuning.share
    )
    steps = iql.fit(agent, optimizers, tuning.batches(config.batch_size, generator), settings)
    return Learner(agent.policy, {**state, "tuning": tuning}, steps)


def _make_explorer(
    config: IqlConfig, agent: iql.IQLAgent, dataset: StoredDataset, seed: int, generator: torch.Generator
) -> Explorer:
    """It plays the policy's own random actions, and no others."""
    plays = build_exploration_config(config.fine_tuning)
    device = dataset.transitions.device
    act = partial(agent.policy.drawn, generator=generator)
    return Explorer(dataset.environment, act, plays, EPISODES * seed, generator, device)


if __name__ == "__main__":
    main(run)
