"""PPO: a policy and a critic trained by the reward model, held near the SFT model (arXiv:1707.06347,
arXiv:2203.02155).
"""

from collections.abc import Iterator
from pathlib import Path

from tasks.algorithms.common.optimizer import METRICS as OPTIMIZER_METRICS
from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
from tasks.algorithms.common.precision import TrainedWeights
from tasks.algorithms.language import ppo
from tasks.algorithms.language.critic import METRICS as CRITIC_METRICS
from tasks.algorithms.language.experience import METRICS as SAMPLE_METRICS
from tasks.algorithms.language.experience import SAMPLER_METRICS
from tasks.algorithms.language.kl import AdaptiveKl
from tasks.common.checkpoints import Stateful
from tasks.common.config import build_settings
from tasks.common.tracking import Row
from tasks.language.configs.ppo import PpoConfig
from tasks.language.training import policy_training
from tasks.language.training.policy_training import Sources, build_algorithm_settings, open_trainee
from tasks.language.training.trained_model import build_policy_critic, build_reference_model
from tasks.stage import Metrics, main

CURVES = METRICS = {
    **{name: text for name, text in SAMPLE_METRICS.items() if name != "entropy"},
    **SAMPLER_METRICS,
    "policy/entropy": SAMPLE_METRICS["entropy"],
    "objective/kl": "The mean over responses of log pi - log pi_ref (k1): an estimate of the KL divergence to the "
    "reference, in nats; below 0 only by chance.",
    "objective/scores": "The mean score of the samples, without the penalties for KL and for a missing end: the "
    "same as reward.",
    "objective/kl_coef": "The weight of the KL penalty in the step's rewards.",
    "loss/policy": "The clipped surrogate loss, a mean over the step's updates (TRL: loss/policy_avg).",
    "loss/value": "Half the critic's squared error, of the value or of the clipped one, whichever is larger; a "
    "mean over the step's updates (TRL: loss/value_avg).",
    "policy/approxkl": "Half the mean squared change of a token's log-probability since sampling (k2), an estimate "
    "of the KL divergence in nats; a mean over the step's updates (TRL: policy/approxkl_avg).",
    "policy/clipfrac": "The share of the tokens where clipping acts, from 0 to 1; a mean over the step's updates "
    "(TRL: policy/clipfrac_avg).",
    "val/ratio": "The mean ratio of a token's probability to that when it was sampled; it should stay near 1.",
    **CRITIC_METRICS,
    **OPTIMIZER_METRICS,
    "grad_norm": "The norm of the policy's gradient before it is clipped, a mean over the step's updates.",
    "grad_norm/value": "The norm of the critic's gradient before it is clipped, a mean over the step's updates.",
    **policy_training.METRICS,
}


def run(
    config: PpoConfig,
    policy: Path,
    mixture: Path,
    reward_model: Path,
    reward_files: Path,
    out: Path,
    curves: Path,
) -> Metrics:
    """Train `policy`; write it to `out`, and the curve to `curves`."""
    with open_trainee("ppo", config, Sources(policy, mixture, reward_model, reward_files)) as learner:
        critic = build_policy_critic(learner.trained)
        reference = build_reference_model(policy, learner.trained)
        updates = config.steps * config.epochs * config.minibatches
        settings = build_settings(config.training, OptimizerSettings)
        optimizer = Optimizer(learner.policy, config.learning_rate, updates, config.clip, settings)
        critic_optimizer = Optimizer(critic, config.critic_learning_rate, updates, config.clip, settings)
        kl = AdaptiveKl(config.kl_coefficient, config.kl_target, config.kl_rate)
        ppo_settings = build_algorithm_settings(config, ppo.PpoSettings)

        def fit(start: int) -> Iterator[Row]:
            return ppo.fit(
                learner.policy,
                critic,
                reference,
                learner.collect,
                (optimizer, critic_optimizer),
                ppo_settings,
                kl,
                start=start,
                steps=config.steps,
                look=learner.rollouts,
            )

        state: dict[str, Stateful] = {
            "critic": TrainedWeights(critic),
            "optimizer": optimizer,
            "critic_optimizer": critic_optimizer,
            "kl": kl,
        }
        return learner.train(fit, state, out, curves)


if __name__ == "__main__":
    main(run, data_parallel=True)
