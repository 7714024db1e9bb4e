"""The section `steering` of params.yaml."""

from typing import Annotated, Literal

from pydantic import Field

from tasks.common.config import Branch, Config, Distinct, LocalPath, Seed

Steered = Literal["reinforce", "ppo", "grpo"]


class PageConfig(Config):
    """One page."""

    # policies that are compared with the SFT model, in the page's order
    policies: Annotated[list[Steered], Field(min_length=1), Distinct]


class SteeringConfig(Config):
    """What is sampled from steered policies, and how the second classifier is trained."""

    branched_by = "pages"

    pages: dict[Branch, PageConfig]  # by name
    seed: Seed  # all random draws of the stage follow from it
    reward_model_path: LocalPath  # folder of the outcome reward model that policies were paid by, a dep
    openings: int = Field(ge=2, le=10**6)  # test openings that are continued, the first
    samples: int = Field(ge=2, le=10**5)  # continuations of each
    max_new_tokens: int = Field(ge=1, le=10**5)  # largest number of tokens of a continuation; a longer one is cut off
    batch_size: int = Field(ge=1, le=10**6)  # openings in one batch
    # texts that a word or a pair of words is in, to count for the second classifier
    minimum_count: int = Field(ge=1, le=10**6)
    # weight of half the squared norm of the second classifier's weights, beside the sum of the losses
    l2: float = Field(gt=0)
    bootstrap: int = Field(ge=1, le=10**6)  # resamples for an interval
    shown: int = Field(ge=1, le=1000)  # openings whose continuations stand side by side on the page
