"""The section `sft` of params.yaml."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from tasks.common.config import Config, Idle, Seed
from tasks.language.configs.parts.training import UNUSED, AccumulatingConfig, DroppingAdapterConfig


class SupervisedConfig(Config):
    """How a policy learns from demonstrations, and from how many."""

    idle = (
        *UNUSED,
        Idle(("truncation",), {"max_length": (None,)}),
        Idle(("group_by_length",), {"packing": (True,)}),
    )

    seed: Seed  # all random draws of the stage follow from it
    demonstrations: int = Field(ge=1, le=10**7)  # largest number of demonstrations, the first of the table
    max_length: int | None = Field(ge=8, le=10**7)  # tokens of a row, at most; null: no limit but the model's own
    # of a longer demonstration: right cuts off its end, left its beginning, drop leaves it out
    truncation: Literal["right", "left", "drop"]
    # whether the token that ends an answer is in the loss; without it the policy is never taught to stop
    learn_end: bool
    packing: bool  # put several demonstrations into a row of max_length tokens, none of which sees another
    # whether a batch has demonstrations of similar lengths, which need little padding; which ones stays random
    group_by_length: bool
    batch_size: int = Field(ge=1, le=10**6)  # rows a gradient step: demonstrations, or with packing rows full of them
    learning_rate: float = Field(gt=0)  # highest learning rate, reached after the warm-up
    # steps between two measurements of the held-out loss; 0: after the last step alone
    evaluate_every: int = Field(ge=0, le=10**9)
    clip: float = Field(gt=0)  # largest norm of the gradient of all weights together; a larger one is scaled down
    training: AccumulatingConfig  # optimizer, schedule, memory
    lora: DroppingAdapterConfig | None  # an adapter in place of all weights; null for none

    @field_validator("packing")
    @classmethod
    def _check_packing_length(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("max_length", 0) is None:
            raise ValueError("expected a number as max_length with packing")
        return value


class SftConfig(SupervisedConfig):
    """How the policy is trained, and for how long."""

    epochs: int = Field(ge=1, le=10**6)  # passes over the data
