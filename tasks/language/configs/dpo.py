"""The section `dpo` of params.yaml."""

from typing import Literal

from pydantic import Field

from tasks.common.config import Config, Idle, Seed
from tasks.language.configs.parts.training import UNUSED, AccumulatingConfig, AdapterConfig


class DpoConfig(Config):
    """Which loss, how strongly the policy is pulled to its reference, and how it is trained."""

    idle = (
        *UNUSED,
        Idle(("label_smoothing",), {"loss": ("ipo", "simpo")}, neutral=0),
        Idle(("length_normalised",), {"loss": ("simpo",)}, neutral=True),
        Idle(("gamma",), {"loss": ("sigmoid", "ipo")}, neutral=0),
        Idle(("truncation",), {"max_length": (None,)}),
    )

    seed: Seed  # all random draws of the stage follow from it
    # sigmoid: arXiv:2305.18290, eq. 7 | ipo: arXiv:2310.12036, eq. 17 | simpo: arXiv:2405.14734, eq. 6
    loss: Literal["sigmoid", "ipo", "simpo"]
    beta: float = Field(gt=0)  # pull towards the reference; a small one trusts the pairs more
    label_smoothing: float = Field(ge=0, lt=0.5)  # share of the labels taken to be wrong: conservative DPO
    length_normalised: bool  # score the mean over response tokens, not the sum
    gamma: float = Field(ge=0)  # the margin that SimPO asks for, in rewards
    # weight of the chosen responses' negative log-likelihood a token, added to any loss, which keeps them likely
    # (arXiv:2404.19733, eq. 1)
    nll: float = Field(ge=0)
    epochs: int = Field(ge=1, le=10**6)  # passes over the data
    prompts_per_batch: int = Field(ge=1, le=10**6)  # prompts in a batch, each with all its pairs
    # tokens of a prompt with a response, at most; null: the model's own limit
    max_length: int | None = Field(ge=8, le=10**7)
    # of longer ones: right cuts off the response's end, left the prompt's beginning, drop leaves the pair out
    truncation: Literal["right", "left", "drop"]
    learning_rate: float = Field(gt=0)  # highest learning rate, reached after the warm-up
    clip: float = Field(gt=0)  # largest norm of the gradient of all weights together; a larger one is scaled down
    training: AccumulatingConfig  # optimizer, schedule, memory
    lora: AdapterConfig | None  # an adapter in place of all weights; null for none
