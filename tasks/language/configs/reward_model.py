"""The section `reward_model` of params.yaml."""

from typing import Literal

from pydantic import Field

from tasks.common.config import Config, Idle, Seed
from tasks.language.configs.training import UNUSED, AccumulatingConfig, DroppingAdapterConfig


class RewardModelConfig(Config):
    """How the reward model scores a response, and how it is trained."""

    idle = (
        *UNUSED,
        Idle(("beta",), {"kind": ("head",)}),
        Idle(("likelihood",), {"kind": ("head",)}, neutral=0.0),
        Idle(("truncation",), {"max_length": (None,)}),
    )

    seed: Seed  # all random draws of the stage follow from it
    # head: on the last token's state | log_probability: beta x the mean over the tokens
    kind: Literal["head", "log_probability"]
    beta: float = Field(gt=0)  # with log_probability: factor on the mean log-probability of a token
    likelihood: float = Field(ge=0)  # with log_probability: weight of the chosen responses' NLL a token
    epochs: int = Field(ge=1, le=10**6)  # passes over the data
    prompts_per_batch: int = Field(ge=1, le=10**6)  # prompts in a batch, each with all its pairs
    max_length: int | None = Field(
        ge=8, le=10**7
    )  # tokens of a prompt with a response, at most; null: the model's own limit
    # of longer ones: right cuts off the response's end, left the prompt's beginning, drop leaves the pair out
    truncation: Literal["right", "left", "drop"]
    learning_rate: float = Field(gt=0)  # highest learning rate, reached after the warm-up
    centering: float = Field(ge=0)  # weight of the mean squared sum of a pair's scores
    # weight of the pair of a best answer and its corruption; a prompt's own pairs together have 1
    corrupted: float = Field(ge=0)
    margin: float = Field(ge=0)  # score difference asked of strong preferences (arXiv:2307.09288, eq. 2); 0 for none
    clip: float = Field(gt=0)  # largest norm of the gradient of all weights together; a larger one is scaled down
    training: AccumulatingConfig  # optimizer, schedule, memory
    lora: DroppingAdapterConfig | None  # an adapter in place of all weights; null for none
