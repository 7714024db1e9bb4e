"""REINFORCE: the plain policy gradient, with no baseline, a running mean, or a critic (advantage actor-critic)."""

from collections.abc import Iterator
from pathlib import Path

from tasks.algorithms.common.optimizer import METRICS as OPTIMIZER_METRICS
from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
from tasks.algorithms.common.precision import TrainedWeights
from tasks.algorithms.language import reinforce
from tasks.algorithms.language.critic import METRICS as CRITIC_METRICS
from tasks.algorithms.language.experience import METRICS as SAMPLE_METRICS
from tasks.algorithms.language.experience import SAMPLER_METRICS
from tasks.common.checkpoints import Stateful
from tasks.common.config import build_settings
from tasks.common.tracking import Row
from tasks.language.configs.reinforce import ReinforceConfig
from tasks.language.training import policy_training
from tasks.language.training.policy_training import Sources, build_algorithm_settings, open_trainee
from tasks.language.training.trained_model import build_policy_critic, build_reference_model
from tasks.stage import Metrics, main

VARIANCE = "The trace of the covariance of the batch's gradient"
CURVES = METRICS = {
    **SAMPLE_METRICS,
    **SAMPLER_METRICS,
    "loss": "The policy-gradient loss; its gradient has a meaning, its value has none.",
    "baseline": "The running mean of returns before the step, whether or not it is the baseline.",
    "return_to_go": "The mean return-to-go over the samples' tokens.",
    "grad_variance/none": f"{VARIANCE} with no baseline; lower is better for this metric and the next three.",
    "grad_variance/running_mean": f"{VARIANCE} with the running mean as baseline, on the same samples.",
    "grad_variance/critic": f"{VARIANCE} with the critic as baseline, on the same samples.",
    "grad_variance/total_return": f"{VARIANCE} with no baseline and each token weighted by the "
    "whole response's return.",
    "objective/kl": "The mean over responses of log pi - log pi_ref (k1): an estimate of the KL divergence to the "
    "reference, in nats; only where kl_coefficient is above 0.",
    "loss/value": "Half the critic's mean squared error over tokens, before its first update on the batch.",
    **CRITIC_METRICS,
    **OPTIMIZER_METRICS,
    **policy_training.METRICS,
}


def run(
    config: ReinforceConfig,
    policy: Path,
    mixture: Path,
    reward_model: Path,
    reward_files: Path,
    out: Path,
    curves: Path,
) -> Metrics:
    """Train `policy`; write it to `out`, and the curve to `curves`."""
    with open_trainee("reinforce", config, Sources(policy, mixture, reward_model, reward_files)) as learner:
        settings = build_settings(config.training, OptimizerSettings)
        optimizer = Optimizer(learner.policy, config.learning_rate, config.steps, config.clip, settings)
        mean = reinforce.RunningMean(config.mean_rate)
        state: dict[str, Stateful] = {"optimizer": optimizer, "mean": mean}
        critic = critic_optimizer = None
        if config.baseline == "critic":
            critic = build_policy_critic(learner.trained)
            state["critic"] = TrainedWeights(critic)
            updates = config.steps * config.critic_updates
            state["critic_optimizer"] = critic_optimizer = Optimizer(
                critic, config.critic_learning_rate, updates, config.clip, settings
            )
        reference = build_reference_model(policy, learner.trained) if config.kl_coefficient else None
        reinforce_settings = build_algorithm_settings(config, reinforce.ReinforceSettings)

        def fit(start: int) -> Iterator[Row]:
            return reinforce.fit(
                learner.policy,
                critic,
                learner.collect_with_line_rewards if config.paid == "by_line" else learner.collect,
                (optimizer, critic_optimizer),
                reinforce_settings,
                mean,
                start=start,
                steps=config.steps,
                reference=reference,
                look=learner.rollouts,
            )

        return learner.train(fit, state, out, curves)


if __name__ == "__main__":
    main(run, data_parallel=True)
