"""The section `transitions` of params.yaml."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from tasks.common.config import Branch, Config, Idle, LocalPath, Seed, is_path_inside_folder

RECORDED = ("random", "medium", "medium-replay", "medium-expert", "expert")


class EpisodeDataset(Config):
    """One data set: where its episodes come from, and how many it has; all of them where both limits are null."""

    idle = (Idle(("location",), {"source": RECORDED}, neutral=None),)

    environment: str  # a key of branches.behaviour
    # which behaviour policy recorded it, or what it is imported from
    source: Literal["random", "medium", "medium-replay", "medium-expert", "expert", "minari", "minari-remote", "d4rl"]
    location: str | None  # place of an import: a folder or file below transitions.path, or Minari's id
    steps: int | None = Field(ge=1)  # number of steps from which on no further episode is added
    episodes: int | None = Field(ge=1)  # largest number of episodes

    @field_validator("location")
    @classmethod
    def _check_import_location(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("source", "random") not in RECORDED:
            raise ValueError("expected text of what is imported")
        if info.data.get("source") in ("minari", "d4rl") and not is_path_inside_folder(str(value)):
            raise ValueError("expected a place below transitions.path, where changes are noticed")
        return value

    @field_validator("episodes")
    @classmethod
    def _check_recording_has_limit(cls, value: int | None, info: ValidationInfo) -> int | None:
        played = info.data.get("source") in ("random", "medium", "medium-expert", "expert")
        if played and value is None and info.data.get("steps", 1) is None:
            raise ValueError("expected a whole number of at least 1 here or in steps")
        return value


class Scale(Config):
    """Two returns of an environment that scores are measured between."""

    minimum: float = Field(allow_inf_nan=False)  # return whose score is 0
    maximum: float = Field(allow_inf_nan=False)  # return whose score is 100

    @field_validator("maximum")
    @classmethod
    def _check_maximum_above_minimum(cls, value: float, info: ValidationInfo) -> float:
        if value <= info.data.get("minimum", -float("inf")):
            raise ValueError(f"expected a number above minimum = {info.data['minimum']}")
        return value


class TransitionsConfig(Config):
    """Which data sets there are."""

    branched_by = "datasets"

    datasets: dict[Branch, EpisodeDataset]  # data sets by name
    # environments, keys of branches.behaviour -> what scores are measured between, in the place of what an imported
    # data set or behaviour says
    references: dict[Branch, Scale]
    path: LocalPath  # the folder of imports; a dep of the stage
    seed: Seed  # all random draws of the stage follow from it
