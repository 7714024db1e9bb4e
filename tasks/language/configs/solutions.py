"""The section `solutions` of params.yaml."""

from typing import Literal

from pydantic import Field

from tasks.common.config import Config, Idle, LocalPath, Seed
from tasks.language.configs.preferences import Judgements

ROLLOUTS = ("estimate", "prompts", "samples", "temperature", "max_new_tokens", "batch_size")


class SolutionsConfig(Config):
    """Where the labels of steps come from, and the split."""

    idle = (
        Idle(("judgements", "minimum"), {"source": ("worked_steps", "rollouts", "files")}),
        Idle(ROLLOUTS, {"source": ("worked_steps", "people", "files")}),
    )

    seed: Seed  # all random draws of the stage follow from it
    # worked_steps: the references of the problems | people: what they judged step by step (posttrain label) | rollouts:
    # Math-Shepherd | files: whole answers with a label
    source: Literal["worked_steps", "people", "rollouts", "files"]
    # a dep of the stage: the sampled responses that are cut into steps; not read with source people. files: a file or
    # folder of rows with prompt, completion and label
    path: LocalPath
    judgements: Judgements  # what people judged, a dep: the file or folder that `posttrain label` writes
    minimum: int = Field(ge=1, le=10**7)  # solutions judged by people that are waited for
    # with rollouts: hard, a step is good if any of its completions is right, else bad | soft, the share of right ones
    # is learned
    estimate: Literal["hard", "soft"]
    prompts: int = Field(ge=1, le=10**7)  # with rollouts: prompts whose responses are used, at most
    samples: int = Field(ge=1, le=10**5)  # with rollouts: completions from the end of each step
    temperature: float = Field(gt=0, le=100)  # with rollouts: temperature of sampling
    max_new_tokens: int = Field(ge=1, le=10**5)  # with rollouts: largest number of tokens of a completion
    batch_size: int = Field(ge=1, le=10**6)  # with rollouts: steps at a time
    test_share: float = Field(gt=0, lt=1)  # share of the prompts that is held out
