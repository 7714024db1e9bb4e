"""GRPO: a policy trained against the other answers to the same prompt, by a verifiable reward (arXiv:2402.03300)."""

from collections.abc import Iterator
from pathlib import Path

from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
from tasks.algorithms.language import grpo
from tasks.common.config import settings_of
from tasks.common.errors import ConfigError
from tasks.common.tracking import Row
from tasks.language.configs.grpo import GrpoConfig
from tasks.language.training import policy_training
from tasks.language.training.policy_training import Sources, learning_settings, trainee
from tasks.language.training.trained_model import new_reference
from tasks.stage import Metrics, main

CURVES = METRICS = {**grpo.METRICS, **policy_training.METRICS}


def run(
    config: GrpoConfig,
    policy: Path,
    mixture: Path,
    reward_model: Path,
    reward_files: Path,
    out: Path,
    curves: Path,
) -> Metrics:
    """Train `policy`; write it to `out`, and the curve to `curves`."""
    with trainee("grpo", config, Sources(policy, mixture, reward_model, reward_files)) as learner:
        if config.supervision == "process" and not learner.training_problems.judge.judges_steps:
            raise ConfigError("params.yaml: grpo.supervision: expected outcome where reward does not count process")
        updates = config.steps * config.updates
        settings = settings_of(config.training, OptimizerSettings)
        optimizer = Optimizer(learner.policy, config.learning_rate, updates, config.clip, settings)
        reference = new_reference(policy, learner.trained) if config.beta else None
        grpo_settings = learning_settings(config, grpo.GrpoSettings)

        def fit(start: int) -> Iterator[Row]:
            return grpo.fit(
                learner.policy,
                learner.collect,
                optimizer,
                grpo_settings,
                start=start,
                steps=config.steps,
                reference=reference,
                look=learner.rollouts,
            )

        return learner.train(fit, {"optimizer": optimizer}, out, curves)


if __name__ == "__main__":
    main(run, data_parallel=True)
