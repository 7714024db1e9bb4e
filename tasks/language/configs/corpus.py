"""The section `corpus` of params.yaml."""

from pydantic import Field

from tasks.common.config import Config, Seed


class CorpusConfig(Config):
    """How much there is of each kind of text."""

    seed: Seed  # all random draws of the stage follow from it
    facts: int = Field(ge=1, le=10**7)  # lines of arithmetic
    solutions: int = Field(ge=0, le=10**7)  # training problems with their solutions
    stories: int = Field(ge=0, le=10**7)  # problems without their solutions
    largest: int = Field(ge=20, le=10**9)  # no sum in a fact exceeds this
