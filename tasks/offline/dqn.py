"""Deep Q-learning from a data set, or with exploration of the environment itself."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from pydantic import Field

from tasks import learning, q_learning
from tasks.algorithms.offline import dqn
from tasks.learning import Learner
from tasks.q_learning import QConfig
from tasks.recordings import Recording
from tasks.stage import Config, Metrics, main


class Variant(Config):
    """One row of the table."""

    double: bool  # whether the online network selects the next action, which the target network values


class DqnConfig(QConfig):
    """How the network learns."""

    variants: dict[str, Variant] = Field(min_length=1)


def run(config: DqnConfig, transitions: Path, out: Path) -> Metrics:
    """Learn with every variant and seed; policies and curves go to `out`."""
    variants: dict[str, Callable[[Recording, int, torch.Generator], Learner]] = {
        name: partial(_build, config, variant) for name, variant in config.variants.items()
    }
    return learning.run("dqn", config, transitions, out, variants)


def _build(config: DqnConfig, variant: Variant, recording: Recording, seed: int, generator: torch.Generator) -> Learner:
    objective = partial(dqn.loss, gamma=config.gamma, double=variant.double, huber=config.loss == "huber")
    return q_learning.offline(config, objective, recording, generator)


if __name__ == "__main__":
    main(run)
