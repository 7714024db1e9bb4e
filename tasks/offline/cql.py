"""Conservative Q-learning from a data set: on double DQN for discrete actions, on soft actor-critic for continuous ones."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from tasks.algorithms.offline import cql, cql_continuous
from tasks.algorithms.offline.adam import Adam
from tasks.offline.configs.cql import CqlConfig, Weight
from tasks.offline.datasets.stored import StoredDataset
from tasks.offline.training import learners, q_learning
from tasks.offline.training.learners import Learner
from tasks.stage import Metrics, main

CURVES = {
    **cql.METRICS,
    **cql_continuous.METRICS,
    "td_error": "For discrete actions the mean |Q(s, a) - y|; for continuous ones the critics' mean squared errors, summed over the critics.",
    **learners.VALUE_METRICS,
    **learners.METRICS,
}
METRICS = learners.by_variant(CURVES)


def run(config: CqlConfig, transitions: Path, out: Path) -> Metrics:
    """Learn with every weight and seed; policies and curves go to `out`."""
    variants: dict[str, Callable[[StoredDataset, int, torch.Generator], Learner]] = {
        name: partial(_build, config, alpha) for name, alpha in config.alphas.items()
    }
    return learners.run("cql", config, transitions, out, variants)


def _build(config: CqlConfig, alpha: Weight, dataset: StoredDataset, seed: int, generator: torch.Generator) -> Learner:
    if not dataset.spaces.discrete:
        return _continuous(config, alpha.continuous, dataset, generator)
    huber = config.loss == "huber"
    objective = partial(cql.loss, gamma=config.gamma, double=True, huber=huber, alpha=alpha.discrete)
    return q_learning.offline(config, objective, dataset, generator)


def _continuous(config: CqlConfig, alpha: float, dataset: StoredDataset, generator: torch.Generator) -> Learner:
    own, data = config.continuous, dataset.transitions
    agent = cql_continuous.Agent(dataset.spaces, config.hidden, own.critics, data.observations, alpha).to(data.device)
    optimizers = {
        "critics": Adam(agent.critics.parameters(), config.learning_rate),
        "policy": Adam(agent.policy.parameters(), own.policy_learning_rate),
        "temperature": Adam([agent.log_temperature], own.policy_learning_rate),
        "alpha": Adam([agent.log_alpha], own.policy_learning_rate),
    }
    settings = cql_continuous.CqlSettings(
        gamma=config.gamma, samples=own.samples, gap=own.gap, target_rate=own.target_rate
    )
    steps = cql_continuous.fit(agent, optimizers, data, settings, batch_size=config.batch_size, generator=generator)
    return Learner(agent.policy, {"agent": agent, **optimizers}, steps)


if __name__ == "__main__":
    main(run)
