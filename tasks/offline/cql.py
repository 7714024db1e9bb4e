"""Conservative Q-learning from a data set: on double DQN for discrete actions, on soft actor-critic for continuous
ones.

A variant may be calibrated (Cal-QL), and may go on in the data set's environment.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from tasks.algorithms.offline import cql, cql_continuous
from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.transition_tensors import TransitionBatch, Transitions
from tasks.common.checkpoints import State
from tasks.offline.configs.cql import CqlConfig, CQLVariant
from tasks.offline.configs.learners import ExplorationConfig
from tasks.offline.datasets.dataset_files import StoredDataset
from tasks.offline.training import learners, q_learning
from tasks.offline.training.learners import Learner
from tasks.offline.training.online import (
    EPISODES,
    Act,
    Explorer,
    FineTuning,
    build_exploration_config,
    return_unchanged,
)
from tasks.stage import Metrics, main

CURVES = {
    **cql.METRICS,
    **cql_continuous.METRICS,
    "td_error": "For discrete actions the mean |Q(s, a) - y|; for continuous ones the critics' mean squared "
    "errors, summed over the critics.",
    **learners.VALUE_METRICS,
    **learners.METRICS,
}
METRICS = {f"VARIANT/{name}": text for name, text in {**learners.STEP, **CURVES}.items()}


def run(config: CqlConfig, transitions: Path, out: Path) -> Metrics:
    """Learn with every weight and seed; policies and curves go to `out`."""
    variants: dict[str, Callable[[StoredDataset, int, torch.Generator], Learner]] = {
        name: partial(_build_cql_learner, config, variant) for name, variant in config.variants.items()
    }
    return learners.train_all_variants("cql", config, transitions, out, variants)


def _build_cql_learner(
    config: CqlConfig, variant: CQLVariant, dataset: StoredDataset, seed: int, generator: torch.Generator
) -> Learner:
    if not dataset.spaces.discrete:
        return _build_continuous_learner(config, variant, dataset, seed, generator)
    objective = partial(
        cql.cql_loss,
        gamma=config.gamma,
        double=True,
        huber=config.loss == "huber",
        alpha=variant.discrete,
        calibrated=variant.calibrated,
    )
    policy = q_learning.build_q_network(config, dataset)
    data = q_learning.normalise_observations(policy.normaliser, dataset.transitions)
    tuning = config.fine_tuning
    plays = build_exploration_config(tuning, tuning.epsilon)
    explorer = partial(
        _make_explorer, config, dataset, seed, generator, policy.act, plays, preprocess=policy.normaliser
    )
    batches, state = _make_batches(config, variant, data, generator, explorer)
    learner = q_learning.build_q_learner(config, objective, policy, batches)
    return replace(learner, state={**learner.state, **state})


def _build_continuous_learner(
    config: CqlConfig, variant: CQLVariant, dataset: StoredDataset, seed: int, generator: torch.Generator
) -> Learner:
    continuous = config.continuous
    data = dataset.transitions
    agent = cql_continuous.CQLAgent(
        dataset.spaces, config.hidden, continuous.critics, data.observations, variant.continuous
    )
    agent = agent.to(data.device)
    optimizers = {
        "critics": Adam(agent.critics.parameters(), config.learning_rate),
        "policy": Adam(agent.policy.parameters(), continuous.policy_learning_rate),
        "temperature": Adam([agent.log_temperature], continuous.policy_learning_rate),
        "alpha": Adam([agent.log_alpha], continuous.policy_learning_rate),
    }
    settings = cql_continuous.CqlSettings(
        gamma=config.gamma,
        samples=continuous.samples,
        gap=continuous.gap,
        target_rate=continuous.target_rate,
        calibrated=variant.calibrated,
    )
    act = partial(agent.policy.drawn, generator=generator)
    explorer = partial(
        _make_explorer, config, dataset, seed, generator, act, build_exploration_config(config.fine_tuning)
    )
    batches, state = _make_batches(config, variant, data, generator, explorer)
    steps = cql_continuous.fit(agent, optimizers, batches, settings, generator)
    return Learner(agent.policy, {"agent": agent, **optimizers, **state}, steps)


def _make_batches(
    config: CqlConfig,
    variant: CQLVariant,
    data: Transitions,
    generator: torch.Generator,
    explorer: Callable[[], Explorer],
) -> tuple[Iterable[TransitionBatch], State]:
    """What the variant learns from, and what of it a checkpoint keeps; Cal-QL needs to know what was earned."""
    reference = data.references(config.gamma) if variant.calibrated else None
    if not variant.online:
        return data.batches(config.batch_size, generator, reference=reference), {}
    fine_tuning = config.fine_tuning
    tuning = FineTuning(data, explorer(), fine_tuning.after, fine_tuning.share, reference)
    return tuning.batches(config.batch_size, generator), {"tuning": tuning}


def _make_explorer(
    config: CqlConfig,
    dataset: StoredDataset,
    seed: int,
    generator: torch.Generator,
    act: Act,
    plays: ExplorationConfig,
    preprocess: Act = return_unchanged,
) -> Explorer:
    device = dataset.transitions.device
    return Explorer(
        dataset.environment, act, plays, EPISODES * seed, generator, device, preprocess=preprocess, gamma=config.gamma
    )


if __name__ == "__main__":
    main(run)
