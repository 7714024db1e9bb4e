"""Deep Q-learning from a data set, or with exploration of the environment itself; with `relabel` in hindsight
(hindsight.py).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from tasks.algorithms.offline import dqn
from tasks.offline.configs.dqn import DqnConfig, DQNVariant
from tasks.offline.datasets.dataset_files import StoredDataset
from tasks.offline.training import learners, q_learning
from tasks.offline.training.learners import Learner
from tasks.offline.training.online import EPISODES, Explorer, build_hindsight
from tasks.stage import Metrics, main

CURVES = {**dqn.METRICS, **learners.VALUE_METRICS, **learners.METRICS}
METRICS = {f"VARIANT/{name}": text for name, text in {**learners.STEP, **CURVES}.items()}


def run(config: DqnConfig, transitions: Path, out: Path) -> Metrics:
    """Learn with every variant and seed; policies and curves go to `out`."""
    variants: dict[str, Callable[[StoredDataset, int, torch.Generator], Learner]] = {
        name: partial(_build_dqn_learner, config, variant) for name, variant in config.variants.items()
    }
    return learners.train_all_variants("dqn", config, transitions, out, variants)


def _build_dqn_learner(
    config: DqnConfig, variant: DQNVariant, dataset: StoredDataset, seed: int, generator: torch.Generator
) -> Learner:
    objective = partial(dqn.dqn_loss, gamma=config.gamma, double=variant.double, huber=config.loss == "huber")
    hindsight = build_hindsight(dataset.environment, variant.relabel, config.relabelled)
    if not variant.online:
        return q_learning.build_offline_q_learner(
            config, objective, dataset, generator, hindsight, target=variant.target, replay=variant.replay
        )
    policy = q_learning.build_q_network(config, dataset)
    explorer = Explorer(
        dataset.environment,
        policy.act,
        config.exploration,
        EPISODES * seed,
        generator,
        dataset.transitions.device,
        preprocess=policy.normaliser,
        relabelling=hindsight,
    )
    learner = q_learning.build_q_learner(
        config, objective, policy, explorer.batches(config.batch_size, replay=variant.replay), target=variant.target
    )
    return replace(learner, state={**learner.state, "explorer": explorer})


if __name__ == "__main__":
    main(run)
