"""The section `sft` of params.yaml."""

from pydantic import Field

from tasks.common.config import Config, Seed
from tasks.language.configs.training import UNUSED, AccumulatingConfig, DroppingAdapterConfig


class SftConfig(Config):
    """How the policy is trained, and on how many demonstrations."""

    idle = UNUSED

    seed: Seed  # all random draws of the stage follow from it
    demonstrations: int = Field(ge=1, le=10**7)  # demonstrations, at most one for each training problem
    epochs: int = Field(ge=1, le=10**6)  # passes over the data
    batch_size: int = Field(ge=1, le=10**6)  # demonstrations a gradient step
    learning_rate: float = Field(gt=0)  # highest learning rate, reached after the warm-up
    clip: float = Field(gt=0)  # largest norm of the gradient of all weights together; a larger one is scaled down
    training: AccumulatingConfig  # optimizer, schedule, memory
    lora: DroppingAdapterConfig | None  # an adapter in place of all weights; null for none
