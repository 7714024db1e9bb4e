"""The section `ppo` of params.yaml."""

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from tasks.common.config import Idle
from tasks.language.configs.parts.policies import PolicyConfig


class PpoConfig(PolicyConfig):
    """How advantages are estimated, how far an update may go, and how the policy is held near its reference."""

    idle = (
        Idle(("clip_ratio", "clip_value"), {"epochs": (1,), "minibatches": (1,)}),  # the ratio is 1
        Idle(("kl_target",), {"kl_coefficient": (0,)}, neutral=None),  # the target only multiplies the coefficient
        Idle(("kl_rate",), {"kl_target": (None,)}),
    )

    gamma: float = Field(gt=0, le=1)  # discount of a reward one step later
    # lambda of generalised advantage estimation (arXiv:1506.02438): 0 is one step and then the value, 1 all rewards
    lam: float = Field(ge=0, le=1)
    # how far the ratio may move from 1 before the gradient stops (arXiv:1707.06347, eq. 7)
    clip_ratio: float = Field(gt=0, lt=1)
    clip_value: float = Field(ge=0)  # how far a value may move from its value at sampling time; 0 does not clip
    epochs: int = Field(ge=1, le=10**6)  # passes over each batch
    minibatches: int = Field(ge=1, le=10**6)  # minibatches in a pass
    missing_end_penalty: float = Field(ge=0)  # subtracted from the score of an answer that the length limit cut off
    whiten: bool  # whether advantages are whitened over the batch
    kl_coefficient: float = Field(ge=0)  # weight of the KL penalty in the reward of each token (k1)
    # KL in nats an answer that the coefficient is adapted to; null: the coefficient stays
    kl_target: Annotated[float, Field(gt=0)] | None
    kl_rate: float = Field(gt=0)  # how fast the coefficient is adapted
    critic_learning_rate: float = Field(gt=0)  # learning rate of the critic
    micro_batch: int = Field(ge=1, le=10**6)  # responses in one pass

    @field_validator("minibatches")
    @classmethod
    def _check_minibatches_not_empty(cls, value: int, info: ValidationInfo) -> int:
        responses = info.data.get("prompts_per_step", value) * info.data.get("samples", 1)
        if value > responses:
            raise ValueError(f"expected at most prompts_per_step x samples = {responses}")
        return value
