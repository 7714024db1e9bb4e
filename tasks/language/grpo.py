"""GRPO: a policy trained against the other answers to the same prompt, by a verifiable reward (arXiv:2402.03300)."""

from functools import partial
from pathlib import Path
from typing import Any

from tasks.algorithms.common.optimizer import Optimizer
from tasks.algorithms.language import grpo
from tasks.common import models
from tasks.language.configs.grpo import GrpoConfig
from tasks.language.training.policy_training import Sources, Trainee, settings, train
from tasks.stage import Metrics, main


def run(
    config: GrpoConfig, policy: Path, mixture: Path, problems: Path, reward_model: Path, out: Path, curves: Path
) -> Metrics:
    """Train `policy`; write it to `out`, and the curve to `curves`."""

    def start_up(trainee: Trainee) -> tuple[Any, dict[str, Any]]:
        updates = config.steps * config.updates
        optimizer = Optimizer(trainee.policy, config.learning_rate, updates, clip=config.clip, warmup=0.05)
        fit = partial(
            grpo.fit,
            trainee.policy,
            trainee.collect,
            optimizer,
            settings(config, grpo.Settings),
            steps=config.steps,
            reference=models.load_model(policy) if config.beta else None,
        )
        return fit, {"optimizer": optimizer}

    return train("grpo", config, Sources(policy, mixture, problems, reward_model), out, curves, start_up)


if __name__ == "__main__":
    main(run)
