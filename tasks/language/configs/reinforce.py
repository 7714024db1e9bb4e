"""The section `reinforce` of params.yaml."""

from typing import Literal

from pydantic import Field

from tasks.common.config import Idle
from tasks.language.configs.parts.policies import PolicyConfig


class ReinforceConfig(PolicyConfig):
    """Which baseline is subtracted, and how often the variance of the gradient is measured."""

    idle = (
        Idle(("mean_rate",), {"baseline": ("none", "critic"), "variance_every": (0,)}),
        Idle(("critic_learning_rate", "critic_updates"), {"baseline": ("none", "running_mean")}),
        Idle(("variance_parts",), {"variance_every": (0,)}),
    )

    # what is subtracted from the return: nothing, its running mean, or what a critic expects
    baseline: Literal["none", "running_mean", "critic"]
    paid: Literal["at_end", "by_line"]  # when the reward is paid: at the last token, or its rise at each line's end
    gamma: float = Field(gt=0, le=1)  # discount of a reward one step later
    # weight of the KL to the SFT model in the reward of each token (k1); 0 costs no reference pass
    kl_coefficient: float = Field(ge=0)
    mean_rate: float = Field(gt=0, le=1)  # rate of the running mean of returns
    # weight of the KL to the SFT model in the reward of each token (k1); 0 costs no reference pass
    critic_learning_rate: float = Field(gt=0)  # learning rate of the critic
    # steps of the critic on each batch; more of them make a better baseline
    critic_updates: int = Field(ge=1, le=10**9)
    variance_every: int = Field(ge=0, le=10**9)  # steps between two measurements of the gradient's variance; 0 for none
    variance_parts: int = Field(ge=2, le=10**9)  # parts that the batch is cut into for a measurement
    micro_batch: int = Field(ge=1, le=10**6)  # responses in one pass
