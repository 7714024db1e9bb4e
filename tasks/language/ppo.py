"""PPO: a policy and a critic trained by the reward model, held near the SFT model (arXiv:1707.06347, arXiv:2203.02155)."""

from functools import partial
from pathlib import Path
from typing import Any

from tasks.algorithms.common.optimizer import Optimizer
from tasks.algorithms.language import ppo
from tasks.algorithms.language.critic import Critic
from tasks.algorithms.language.kl import AdaptiveKl
from tasks.common import models
from tasks.language.configs.ppo import PpoConfig
from tasks.language.training.policy_training import Sources, Trainee, settings, train
from tasks.stage import Metrics, main


def run(
    config: PpoConfig, policy: Path, mixture: Path, problems: Path, reward_model: Path, out: Path, curves: Path
) -> Metrics:
    """Train `policy`; write it to `out`, and the curve to `curves`."""

    def start_up(trainee: Trainee) -> tuple[Any, dict[str, Any]]:
        critic = Critic(trainee.policy)
        kl = AdaptiveKl(config.kl_coefficient, config.kl_target, config.kl_rate)
        updates = config.steps * config.epochs * config.minibatches
        optimizers = (
            Optimizer(trainee.policy, config.learning_rate, updates, clip=config.clip, warmup=0.05),
            Optimizer(critic, config.critic_learning_rate, updates, clip=config.clip, warmup=0.05),
        )
        fit = partial(
            ppo.fit,
            trainee.policy,
            critic,
            models.load_model(policy),
            trainee.collect,
            optimizers,
            settings(config, ppo.Settings),
            kl,
            steps=config.steps,
        )
        return fit, {"critic": critic, "optimizer": optimizers[0], "critic_optimizer": optimizers[1], "kl": kl}

    return train("ppo", config, Sources(policy, mixture, problems, reward_model), out, curves, start_up)


if __name__ == "__main__":
    main(run)
