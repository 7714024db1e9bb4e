"""The section `demonstrations` of params.yaml."""

from typing import Literal

from pydantic import Field

from tasks.common.config import Config, Idle, LocalPath, Seed


class DemonstrationsConfig(Config):
    """Where the conversations come from that supervised fine-tuning imitates."""

    idle = (
        Idle(("path",), {"source": ("problems", "hub")}),
        Idle(("hub_id", "hub_config", "hub_revision", "hub_split"), {"source": ("problems", "files", "people")}),
        Idle(("validation_share",), {"source": ("problems",)}),
    )

    seed: Seed  # all random draws of the stage follow from it
    # problems: worked solutions of the training problems | files | hub | people: the better answers that they wrote
    # (posttrain label)
    source: Literal["problems", "files", "hub", "people"]
    # files: a .jsonl, .json or .parquet file, or a folder of them | people: the record, such as data/raw/judgements; a
    # dep of the stage
    path: LocalPath
    hub_id: str  # a repository of the Hugging Face hub
    hub_config: str | None  # configuration of the data set; null: its only one
    hub_revision: str  # revision of the repository: a branch, a tag or a commit
    hub_split: str  # split of the data set
    validation_share: float = Field(gt=0, lt=1)  # share of the prompts of files, a hub set or people that is held out
