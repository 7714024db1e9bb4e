"""The section `preferences` of params.yaml."""

from typing import Literal

from pydantic import Field

from tasks.common.config import Config, Idle, Seed

HUB = ("hub_id", "hub_config", "hub_revision", "hub_split")


class PreferencesConfig(Config):
    """Where pairs come from, how the simulated annotator perceives rubric points, and the split."""

    idle = (
        Idle(("temperature", "tie_margin", "strong_margin"), {"source": ("files", "hub")}),
        Idle(HUB, {"source": ("annotator", "files")}),
    )

    seed: Seed  # all random draws of the stage follow from it
    source: Literal["annotator", "files", "hub"]  # annotator: a simulated one ranks responses | files | hub
    # a dep of the stage. annotator: the responses | files: a .jsonl, .json or .parquet file, or a folder of them | hub: data/raw/preferences
    path: str
    hub_id: str  # a repository of the Hugging Face hub
    hub_config: str | None  # configuration of the data set; null: its only one
    hub_revision: str  # revision of the repository: a branch, a tag or a commit
    hub_split: str  # split of the data set
    temperature: float = Field(ge=0)  # scale of the Bradley-Terry noise in rubric points; 0 is a perfect annotator
    tie_margin: float = Field(ge=0)  # noisy scores at most this far apart are a tie
    strong_margin: float = Field(ge=0)  # at least this far apart, one is better and not only slightly better
    test_share: float = Field(gt=0, lt=1)  # share of the prompts that is held out
