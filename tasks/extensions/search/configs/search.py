"""The section `search` of params.yaml."""

from typing import Annotated

from pydantic import Field

from tasks.common.config import Config, Distinct, LocalPath, Seed
from tasks.language.configs.parts.names import PolicyName


class SearchConfig(Config):
    """Which policies search, with what, and how much is sampled."""

    branched_by = "policies"

    seed: Seed  # all random draws of the stage follow from it
    policies: Annotated[list[PolicyName], Distinct]  # those that search for answers; none by default (preset search)
    # folder of a reward model, a dep, which scores answers by its own objective; one without a model scores none
    reward_model_path: LocalPath
    # a folder, a dep, with further models in folders: pairs, outcome and process are reward models, small is a second
    # policy
    models_path: LocalPath
    problems: int = Field(ge=1, le=10**7)  # test problems, the first of the table
    samples: int = Field(ge=2, le=1000)  # samples of each problem; the budgets are 1, 2, 4 ... and this number
    temperature: float = Field(gt=0, le=100)  # temperature of sampling
    max_new_tokens: int = Field(ge=1, le=10**5)  # largest number of tokens of an answer; a longer one is cut off
    batch_size: int = Field(ge=1, le=10**6)  # problems in one batch
    # random subsets of a problem's samples at each budget, where no formula gives the mean over all of them
    subsets: int = Field(ge=1, le=10**6)
    beam_expansions: int = Field(ge=1, le=10**4)  # next steps sampled behind each beam
    # beams kept after each step by the process reward model; a beam search of width w counts as w * beam_expansions
    # samples
    beam_widths: Annotated[list[Annotated[int, Field(ge=1, le=10**4)]], Distinct]
    bootstrap: int = Field(ge=1, le=10**6)  # resamples for the interval of a difference
