"""The section `preferences` of params.yaml."""

from pydantic import Field

from tasks.common.config import Config, Seed


class PreferencesConfig(Config):
    """How the annotator perceives rubric points, and the split."""

    seed: Seed  # all random draws of the stage follow from it
    temperature: float = Field(ge=0)  # scale of the Bradley-Terry noise in rubric points; 0 is a perfect annotator
    tie_margin: float = Field(ge=0)  # noisy scores at most this far apart are a tie
    strong_margin: float = Field(ge=0)  # at least this far apart, one is better and not only slightly better
    test_share: float = Field(gt=0, lt=1)  # share of the prompts that is held out
