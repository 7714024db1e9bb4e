"""The section `sft_control` of params.yaml."""

from pydantic import Field

from tasks.common.config import Config
from tasks.language.configs.parts.names import ControlName
from tasks.language.configs.sft import SupervisedConfig


class ControlConfig(Config):
    """How long one control is trained."""

    epochs: int = Field(ge=1, le=10**6)  # passes over the data


class SftControlConfig(SupervisedConfig):
    """How SFT is carried on, and on which demonstrations."""

    branched_by = "policies"

    policies: dict[ControlName, ControlConfig]  # by their names in report.policies
    skip: int = Field(ge=0, le=10**7)  # demonstrations passed over: those that SFT has seen
