"""The section `corpus` of params.yaml."""

from typing import Literal

from pydantic import Field

from tasks.common.config import Config, Idle, LocalPath, Seed


class CorpusConfig(Config):
    """Where the text comes from, and how much there is of each generated kind."""

    idle = (
        Idle(("path",), {"source": ("generated",)}),
        Idle(("facts", "solutions", "stories", "largest"), {"source": ("files",)}),
    )

    seed: Seed  # all random draws of the stage follow from it
    source: Literal["generated", "files"]  # generated: arithmetic and the training problems | files
    # files: a .jsonl, .json or .parquet file with a column `text`, or a folder of them; a dep of the stage
    path: LocalPath
    facts: int = Field(ge=1, le=10**7)  # lines of arithmetic
    solutions: int = Field(ge=0, le=10**7)  # training problems with their solutions
    stories: int = Field(ge=0, le=10**7)  # problems without their solutions
    largest: int = Field(ge=20, le=10**9)  # no sum in a fact exceeds this
