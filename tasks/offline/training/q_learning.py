"""What the stages that learn Q-values of discrete actions share: settings, and a learner from a data set."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

import torch

from tasks.algorithms.offline import dqn
from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.hindsight import Hindsight, Relabelled
from tasks.algorithms.offline.networks.mlp import Normaliser, QValues
from tasks.algorithms.offline.networks.target import TargetNetwork
from tasks.algorithms.offline.transition_tensors import TransitionBatch
from tasks.common.errors import DataError
from tasks.offline.configs.learners import QConfig
from tasks.offline.datasets.dataset_files import StoredDataset
from tasks.offline.training.learners import Learner

Kind = TypeVar("Kind", bound=TransitionBatch)


def build_q_network(config: QConfig, dataset: StoredDataset) -> QValues:
    """A new network, which normalises by the data's mean and deviation; DataError with one line if actions are not a
    finite set.
    """
    if not dataset.spaces.discrete:
        raise DataError(f"data set {dataset.name}: actions are continuous; Q-values of every action need a finite set")
    policy = QValues(dataset.spaces, config.hidden, config.gamma)
    policy.normaliser.fit(dataset.transitions.observations)
    return policy.to(dataset.transitions.device)


def build_q_learner(
    config: QConfig, objective: dqn.Loss, policy: QValues, batches: Iterable[TransitionBatch], *, target: bool = True
) -> Learner:
    """A learner from these batches, which are normalised as the policy does it; without `target` the online network
    values its own targets.
    """
    every, rate = (config.target_every, config.target_rate) if target else (1, 1.0)
    following = TargetNetwork(policy.layers, every=every, rate=rate)
    optimizer = Adam(policy.parameters(), config.learning_rate)
    steps = dqn.fit(policy, following, optimizer, batches, objective)
    return Learner(policy, {"policy": policy, "target": following, "optimizer": optimizer}, steps)


def build_offline_q_learner(
    config: QConfig,
    objective: dqn.Loss,
    dataset: StoredDataset,
    generator: torch.Generator,
    hindsight: Hindsight | None = None,
    *,
    target: bool = True,
    replay: bool = True,
) -> Learner:
    """A learner from the data set alone, some of whose goals are others in hindsight; without `replay` its batches are
    runs of the data.
    """
    policy = build_q_network(config, dataset)
    if hindsight is not None:
        source = Relabelled(dataset.transitions, hindsight.goals, hindsight.strategy, hindsight.share)
        drawn = source.batches(config.batch_size, generator)
        return build_q_learner(
            config,
            objective,
            policy,
            (normalise_observations(policy.normaliser, batch) for batch in drawn),
            target=target,
        )
    data = normalise_observations(policy.normaliser, dataset.transitions)
    batches = data.batches(config.batch_size, generator, replay=replay)
    return build_q_learner(config, objective, policy, batches, target=target)


def normalise_observations(normaliser: Normaliser, data: Kind) -> Kind:
    """The data with normalised observations; of a whole data set once for all steps, which costs less than in each."""
    return replace(
        data, observations=normaliser(data.observations), next_observations=normaliser(data.next_observations)
    )
