"""The section `mixture` of params.yaml."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from tasks.common.config import Config, Idle, LocalPath, Seed, is_path_inside_folder
from tasks.language.configs.parts.names import RewardOrPolicy

HUB = ("hub_config", "hub_revision", "hub_split")


class MixtureDataset(Config):
    """One data set of the mixture."""

    idle = (Idle(("location",), {"source": ("problems",)}, neutral=""),)

    name: str = Field(min_length=1)  # name of the data set, with which its prompts' ids begin
    source: Literal["problems", "file", "hub"]  # problems: the training problems of the stage `problems` | file | hub
    location: str  # file: a file, or a folder of files, below mixture.path; hub: an id
    hub_config: str | None  # configuration of a hub set; null: its only one
    hub_revision: str | None  # revision of a hub set: a branch, a tag or a commit
    hub_split: str | None  # split of a hub set
    weight: float = Field(gt=0)  # weight of the data set; its share of the prompts is its weight over the sum of all
    # reward for answers to its prompts; policy: that of the stage that trains
    reward: RewardOrPolicy

    @field_validator("location")
    @classmethod
    def _check_path_is_tracked(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("source") == "file" and not is_path_inside_folder(value):
            raise ValueError("expected a file below mixture.path, where changes are noticed")
        return value

    @field_validator(*HUB)
    @classmethod
    def _check_hub_fields(cls, value: str | None, info: ValidationInfo) -> str | None:
        hub = info.data.get("source") == "hub"
        if hub and value is None and info.field_name != "hub_config":
            raise ValueError("expected text with source hub")
        if not hub and value is not None:
            raise ValueError("expected null where source is not hub")
        return value


class MixtureConfig(Config):
    """How many prompts are drawn, and from where."""

    idle = (
        Idle(("skip",), {"datasets.*.source": ("file", "hub")}),
        Idle(("validation_share",), {"datasets.*.source": ("problems",)}),
        Idle(("path",), {"datasets.*.source": ("problems", "hub")}),
        Idle(("hub_config", "hub_revision"), {"datasets.*.source": ("problems", "file")}),
    )

    seed: Seed  # all random draws of the stage follow from it
    prompts: int = Field(ge=1, le=10**7)  # largest number of prompts that are drawn
    skip: int = Field(ge=0, le=10**7)  # training problems passed over, since SFT has seen them
    validation_share: float = Field(ge=0, lt=1)  # share of the prompts of a file or a hub set that is held out
    path: LocalPath  # the folder of files; a dep of the stage
    datasets: list[MixtureDataset] = Field(min_length=1)  # data sets that are mixed

    @field_validator("datasets")
    @classmethod
    def _check_names_differ(cls, value: list[MixtureDataset]) -> list[MixtureDataset]:
        names = [dataset.name for dataset in value]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"expected different names; {names.count(twice[0])} are {twice[0]!r}")
        return value
