"""Behaviour cloning of a data set, and of its best trajectories only (10%BC); with `relabel` towards what they reached
(arXiv:1912.06088).
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from tasks.algorithms.offline import bc
from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.hindsight import Relabelled
from tasks.algorithms.offline.networks.mlp import MeanAction, Preferences
from tasks.algorithms.offline.transition_tensors import Transitions
from tasks.offline.configs.bc import BcConfig
from tasks.offline.datasets.dataset_files import StoredDataset
from tasks.offline.environments import simulators
from tasks.offline.training import learners
from tasks.offline.training.learners import Learner
from tasks.stage import Metrics, main

CURVES = {**bc.METRICS, **learners.METRICS}
METRICS = {f"VARIANT/{name}": text for name, text in {**learners.STEP, **CURVES}.items()}


def run(config: BcConfig, transitions: Path, out: Path) -> Metrics:
    """Clone with every share and seed; policies and curves go to `out`."""
    variants: dict[str, Callable[[StoredDataset, int, torch.Generator], Learner]] = {
        name: partial(_build_bc_learner, config, share) for name, share in config.shares.items()
    }
    return learners.train_all_variants("bc", config, transitions, out, variants)


def _build_bc_learner(
    config: BcConfig, share: float, dataset: StoredDataset, seed: int, generator: torch.Generator
) -> Learner:
    data = dataset.transitions.best(share)
    kind = Preferences if dataset.spaces.discrete else MeanAction
    policy = kind(dataset.spaces, config.hidden).to(data.device)
    policy.normaliser.fit(data.observations)
    optimizer = Adam(policy.parameters(), config.learning_rate)
    source: Transitions | Relabelled = data
    if config.relabel != "none":
        source = Relabelled(data, simulators.build_environment_goals(dataset.environment), config.relabel, share=1.0)
    steps = bc.fit(policy, optimizer, source, batch_size=config.batch_size, generator=generator)
    return Learner(policy, {"policy": policy, "optimizer": optimizer}, steps)


if __name__ == "__main__":
    main(run)
