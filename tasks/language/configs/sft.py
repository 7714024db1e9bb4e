"""The section `sft` of params.yaml."""

from typing import Literal

from pydantic import Field

from tasks.common.config import Config, Seed


class SftConfig(Config):
    """How the policy is trained, and on how many demonstrations."""

    seed: Seed
    demonstrations: int = Field(ge=1, le=10**7)  # at most as many as there are training problems
    epochs: int = Field(ge=1, le=10**6)
    batch_size: int = Field(ge=1, le=10**6)
    optimizer: Literal["adamw", "muon"]
    learning_rate: float = Field(gt=0)
    weight_decay: float = Field(ge=0)
    clip: float = Field(gt=0)
