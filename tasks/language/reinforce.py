"""REINFORCE: the plain policy gradient, with no baseline, a running mean, or a critic (advantage actor-critic)."""

from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from tasks.algorithms.common.optimizer import Optimizer
from tasks.algorithms.language import reinforce
from tasks.algorithms.language.critic import Critic
from tasks.language.training.policy_training import PolicyConfig, Sources, Trainee, settings, train
from tasks.stage import Idle, Metrics, main


class ReinforceConfig(PolicyConfig):
    """Which baseline is subtracted, and how often the variance of the gradient is measured."""

    idle = (
        Idle(("mean_rate",), {"baseline": ("none", "critic"), "variance_every": (0,)}),
        Idle(("critic_learning_rate", "critic_updates"), {"baseline": ("none", "running_mean")}),
        Idle(("variance_parts",), {"variance_every": (0,)}),
    )

    baseline: Literal["none", "running_mean", "critic"]
    paid: Literal["at_end", "by_line"]  # the reward: at the last token, or at each line's end what it rose by
    gamma: float = Field(gt=0, le=1)
    mean_rate: float = Field(gt=0, le=1)  # of the running mean of returns
    critic_learning_rate: float = Field(gt=0)
    critic_updates: int = Field(
        ge=1, le=10**9
    )  # steps of the critic on each batch; more of them make a better baseline
    variance_every: int = Field(ge=0, le=10**9)  # steps between two measurements of the gradient's variance; 0 for none
    variance_parts: int = Field(ge=2, le=10**9)  # the batch is cut into so many for it
    micro_batch: int = Field(ge=1, le=10**6)  # responses in one pass


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
