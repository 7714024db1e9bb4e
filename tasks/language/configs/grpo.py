"""The section `grpo` of params.yaml."""

from typing import Literal

from pydantic import Field

from tasks.common.config import Idle
from tasks.language.configs.parts.policies import PolicyConfig


class GrpoConfig(PolicyConfig):
    """How advantages are made and how the loss is summed; tasks/algorithms/language/grpo.py explains each choice."""

    idle = (
        Idle(("clip_low", "clip_high"), {"updates": (1,)}),  # the ratio is 1
        Idle(("kl",), {"beta": (0,)}),
    )

    samples: int = Field(ge=2, le=10**5)  # G, responses to a prompt
    # outcome: an answer's reward is its tokens' | process: a token's are those of its step and the later ones, by the
    # model at reward_model_path
    supervision: Literal["outcome", "process"]
    advantage: Literal["standardized", "centered"]  # standardized: GRPO | centered: Dr. GRPO
    # grpo: mean within an answer, then over answers | dapo: over all tokens | dr_grpo: sum over a constant | bnpo: over
    # a part's tokens
    aggregation: Literal["grpo", "bnpo", "dr_grpo", "dapo"]
    updates: int = Field(ge=1, le=10**9)  # optimizer steps on each batch; later ones use the importance ratio
    clip_low: float = Field(gt=0, lt=1)  # how far the ratio may fall below 1 before the gradient stops
    clip_high: float = Field(gt=0)  # how far the ratio may rise above 1 before the gradient stops
    beta: float = Field(ge=0)  # weight of the KL to the SFT model in the loss; 0 costs no reference pass
    # which estimate of that KL is in the loss: k1 (no gradient on average) | k2 (the gradient of KL(policy || SFT)) |
    # k3 (of KL(SFT || policy); GRPO)
    kl: Literal["k1", "k2", "k3"]
    mask_truncated: bool  # leave answers that the length limit cut off out of the loss
    micro_batch: int = Field(ge=1, le=10**6)  # responses in one pass
