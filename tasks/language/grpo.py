"""GRPO: a policy trained against the other answers to the same prompt, by a verifiable reward (arXiv:2402.03300)."""

from collections.abc import Iterator
from pathlib import Path

from tasks.algorithms.common.optimizer import METRICS as OPTIMIZER_METRICS
from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
from tasks.algorithms.language import grpo
from tasks.algorithms.language.experience import METRICS as SAMPLE_METRICS
from tasks.algorithms.language.experience import SAMPLER_METRICS
from tasks.common.config import build_settings
from tasks.common.errors import ConfigError
from tasks.common.tracking import Row
from tasks.language.configs.grpo import GrpoConfig
from tasks.language.training import policy_training
from tasks.language.training.policy_training import Sources, build_algorithm_settings, open_trainee
from tasks.language.training.trained_model import build_reference_model
from tasks.stage import Metrics, main

CURVES = METRICS = {
    **SAMPLE_METRICS,
    **SAMPLER_METRICS,
    "frac_reward_zero_std": "The share of the prompts, of those with a sample that has a reward, whose responses "
    "(with supervision process: their steps too) all earned the same reward, from 0 to 1: "
    "their advantages are 0.",
    "loss": "The loss of the step's last update; it says little of progress, since rewards count "
    "relative to their group.",
    "clip_ratio": "The share of the tokens where clipping acts in the step's last update, from 0 to 1 (TRL: "
    "clip_ratio/region_mean).",
    "kl": "The mean over tokens of ref / pi - log(ref / pi) - 1 (k3), an estimate of the KL divergence to the "
    "reference in nats, whichever estimator is in the loss; logged where beta is above 0.",
    "kl_slope_std": "The standard deviation over tokens of the KL term's derivative by the token's "
    "log-probability, before beta; logged where beta is above 0. At 0 all tokens are pushed down "
    "alike, which on average holds nothing.",
    **OPTIMIZER_METRICS,
    **policy_training.METRICS,
}


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
    with open_trainee("grpo", config, Sources(policy, mixture, reward_model, reward_files)) as learner:
        if config.supervision == "process" and not learner.training_problems.judge.has_step_rewards:
            raise ConfigError("params.yaml: grpo.supervision: expected outcome where reward does not count process")
        updates = config.steps * config.updates
        settings = build_settings(config.training, OptimizerSettings)
        optimizer = Optimizer(learner.policy, config.learning_rate, updates, config.clip, settings)
        reference = build_reference_model(policy, learner.trained) if config.beta else None
        grpo_settings = build_algorithm_settings(config, grpo.GrpoSettings)

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
