"""PPO: a policy and a critic trained by the reward model, held near the SFT model (arXiv:1707.06347, arXiv:2203.02155)."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator

from tasks.algorithms.common.optimizer import Optimizer
from tasks.algorithms.language import ppo
from tasks.algorithms.language.critic import Critic
from tasks.algorithms.language.kl import AdaptiveKl
from tasks.common import models
from tasks.language.training.policy_training import PolicyConfig, Sources, Trainee, settings, train
from tasks.stage import Idle, Metrics, main


class PpoConfig(PolicyConfig):
    """How advantages are estimated, how far an update may go, and how the policy is held near its reference."""

    idle = (
        Idle(("clip_ratio", "clip_value"), {"epochs": (1,), "minibatches": (1,)}),  # the ratio is 1
        Idle(("kl_target",), {"kl_coefficient": (0,)}, neutral=None),  # it is a factor that moves the coefficient
        Idle(("kl_rate",), {"kl_target": (None,)}),
    )

    gamma: float = Field(gt=0, le=1)
    lam: float = Field(ge=0, le=1)
    clip_ratio: float = Field(gt=0, lt=1)
    clip_value: float = Field(ge=0)  # how far a value may move from the one sampled with; 0 does not clip
    epochs: int = Field(ge=1, le=10**6)  # passes over each batch
    minibatches: int = Field(ge=1, le=10**6)  # in a pass
    missing_end_penalty: float = Field(ge=0)  # for an answer that the length limit cut off
    whiten: bool  # advantages, over the batch
    kl_coefficient: float = Field(ge=0)  # of the KL penalty in the reward of each token (k1)
    kl_target: (
        Annotated[float, Field(gt=0)] | None
    )  # nats an answer; moves the coefficient towards it. null: the coefficient stays
    kl_rate: float = Field(gt=0)  # how fast
    critic_learning_rate: float = Field(gt=0)

    @field_validator("minibatches")
    @classmethod
    def _none_is_empty(cls, value: int, info: ValidationInfo) -> int:
        responses = info.data.get("prompts_per_step", value) * info.data.get("samples", 1)
        if value > responses:
            raise ValueError(f"expected at most {responses}, the responses of a step (prompts_per_step * samples)")
        return value


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
