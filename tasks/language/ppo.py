"""PPO: a policy and a critic trained by the reward model, held near the SFT model (arXiv:1707.06347,
arXiv:2203.02155).
"""

from collections.abc import Iterator
from pathlib import Path

from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
from tasks.algorithms.common.precision import TrainedWeights
from tasks.algorithms.language import ppo
from tasks.algorithms.language.kl import AdaptiveKl
from tasks.common.checkpoints import Stateful
from tasks.common.config import settings_of
from tasks.common.tracking import Row
from tasks.language.configs.ppo import PpoConfig
from tasks.language.training import policy_training
from tasks.language.training.policy_training import Sources, learning_settings, trainee
from tasks.language.training.trained_model import new_critic, new_reference
from tasks.stage import Metrics, main

CURVES = METRICS = {**ppo.METRICS, **policy_training.METRICS}


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
    with trainee("ppo", config, Sources(policy, mixture, reward_model, reward_files)) as learner:
        critic, reference = new_critic(learner.trained), new_reference(policy, learner.trained)
        updates = config.steps * config.epochs * config.minibatches
        settings = settings_of(config.training, OptimizerSettings)
        optimizer = Optimizer(learner.policy, config.learning_rate, updates, config.clip, settings)
        critic_optimizer = Optimizer(critic, config.critic_learning_rate, updates, config.clip, settings)
        kl = AdaptiveKl(config.kl_coefficient, config.kl_target, config.kl_rate)
        ppo_settings = learning_settings(config, ppo.PpoSettings)

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
