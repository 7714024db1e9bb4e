"""REINFORCE: the plain policy gradient, with no baseline, a running mean, or a critic (advantage actor-critic)."""

from functools import partial
from pathlib import Path
from typing import Any

from tasks.algorithms.common.optimizer import Optimizer
from tasks.algorithms.language import reinforce
from tasks.algorithms.language.critic import Critic
from tasks.language.configs.reinforce import ReinforceConfig
from tasks.language.training.policy_training import Sources, Trainee, settings, train
from tasks.stage import Metrics, main


def run(
    config: ReinforceConfig, policy: Path, mixture: Path, problems: Path, reward_model: Path, out: Path, curves: Path
) -> Metrics:
    """Train `policy`; write it to `out`, and the curve to `curves`."""

    def start_up(trainee: Trainee) -> tuple[Any, dict[str, Any]]:
        optimizer = Optimizer(trainee.policy, config.learning_rate, config.steps, clip=config.clip, warmup=0.05)
        mean = reinforce.RunningMean(config.mean_rate)
        state: dict[str, Any] = {"optimizer": optimizer, "mean": mean}
        if config.baseline == "critic":
            critic = state["critic"] = Critic(trainee.policy)
            rate = config.critic_learning_rate
            updates = config.steps * config.critic_updates
            state["critic_optimizer"] = Optimizer(critic, rate, updates, clip=config.clip, warmup=0.05)
        fit = partial(
            reinforce.fit,
            trainee.policy,
            state.get("critic"),
            trainee.collect_by_line if config.paid == "by_line" else trainee.collect,
            (optimizer, state.get("critic_optimizer")),
            settings(config, reinforce.Settings),
            mean,
            steps=config.steps,
        )
        return fit, state

    return train("reinforce", config, Sources(policy, mixture, problems, reward_model), out, curves, start_up)


if __name__ == "__main__":
    main(run)
