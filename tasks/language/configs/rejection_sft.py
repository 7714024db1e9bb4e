"""The section `rejection_sft` of params.yaml."""

from pydantic import Field

from tasks.language.configs.policies import SamplingConfig


class RejectionSftConfig(SamplingConfig):
    """How many answers are drawn, which are kept, and how the policy is trained on them."""

    prompts: int = Field(ge=1, le=10**7)  # at most; the first of the mixture
    prompts_per_batch: int = Field(ge=1, le=10**6)  # in sampling
    minimum_reward: float  # a prompt whose best answer earns less is left out
    epochs: int = Field(ge=1, le=10**6)
    batch_size: int = Field(ge=1, le=10**6)
    learning_rate: float = Field(gt=0)
    clip: float = Field(gt=0)
