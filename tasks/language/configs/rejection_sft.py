"""The section `rejection_sft` of params.yaml."""

from pydantic import Field

from tasks.language.configs.parts.policies import SamplingConfig
from tasks.language.configs.parts.training import UNUSED, AccumulatingConfig, DroppingAdapterConfig


class RejectionSftConfig(SamplingConfig):
    """How many answers are drawn, which are kept, and how the policy is trained on them."""

    idle = UNUSED

    prompts: int = Field(ge=1, le=10**7)  # largest number of prompts, taken from the start of the mixture
    prompts_per_batch: int = Field(ge=1, le=10**6)  # prompts of a batch in sampling
    minimum_reward: float  # a prompt whose best answer earns less is left out
    epochs: int = Field(ge=1, le=10**6)  # passes over the data
    batch_size: int = Field(ge=1, le=10**6)  # demonstrations a gradient step
    learning_rate: float = Field(gt=0)  # highest learning rate, reached after the warm-up
    clip: float = Field(gt=0)  # largest norm of the gradient of all weights together; a larger one is scaled down
    training: AccumulatingConfig  # optimizer, schedule, memory
    lora: DroppingAdapterConfig | None  # an adapter in place of all weights; null for none
