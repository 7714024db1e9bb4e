"""GRPO: a policy trained against the other answers to the same prompt, by a verifiable reward (arXiv:2402.03300)."""

from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from tasks.algorithms.common.optimizer import Optimizer
from tasks.algorithms.language import grpo
from tasks.common import models
from tasks.language.training.policy_training import PolicyConfig, Sources, Trainee, settings, train
from tasks.stage import Idle, Metrics, main


class GrpoConfig(PolicyConfig):
    """How advantages are made and how the loss is summed; tasks/algorithms/language/grpo.py says what each choice means."""

    idle = (Idle(("clip_low", "clip_high"), {"updates": (1,)}),)  # the ratio is 1

    samples: int = Field(ge=2, le=10**5)  # G, responses to a prompt
    advantage: Literal["standardized", "centered"]  # GRPO | Dr. GRPO
    aggregation: Literal["grpo", "bnpo", "dr_grpo", "dapo"]
    updates: int = Field(ge=1, le=10**9)  # optimizer steps on each batch, by importance ratio
    clip_low: float = Field(gt=0, lt=1)
    clip_high: float = Field(gt=0)
    beta: float = Field(ge=0)  # weight of the KL to the SFT model (k3); 0 costs no reference pass
    mask_truncated: bool  # leave answers that the length limit cut off out of the loss
    micro_batch: int = Field(ge=1, le=10**6)  # responses in one pass


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
