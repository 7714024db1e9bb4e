"""The section `sft` of params.yaml."""

from typing import Literal

from pydantic import Field

from tasks.common.config import Config, Seed


class SftConfig(Config):
    """How the policy is trained, and on how many demonstrations."""

    seed: Seed  # all random draws of the stage follow from it
    demonstrations: int = Field(ge=1, le=10**7)  # demonstrations, at most one for each training problem
    epochs: int = Field(ge=1, le=10**6)  # passes over the data
    batch_size: int = Field(ge=1, le=10**6)  # demonstrations a gradient step
    # adamw | muon: Muon for hidden matrices and AdamW for the rest (arXiv:2502.16982)
    optimizer: Literal["adamw", "muon"]
    learning_rate: float = Field(gt=0)  # highest learning rate, reached after the warm-up
    weight_decay: float = Field(ge=0)  # weight decay, decoupled from the gradient (AdamW, arXiv:1711.05101)
    clip: float = Field(gt=0)  # largest norm of the gradient of all weights together; a larger one is scaled down
