"""The section `td3` of params.yaml."""

from pydantic import Field

from tasks.common.config import Config, Idle, Name
from tasks.extensions.continuous_control.configs.td3_bc import TwinDelayedConfig
from tasks.offline.configs.learners import RELABEL, ExplorationConfig


class TD3Variant(Config):
    """One variant of the method."""

    # hindsight: goals that an episode reached in the place of the one asked: none | future | final | episode
    relabel: RELABEL


class Td3Config(TwinDelayedConfig):
    """How environments are explored; a data set says which, and by its observations how they are scaled."""

    named_by = "variants"
    needs_actions = "continuous"
    idle = (Idle(("relabelled",), {"variants.*.relabel": ("none",)}),)

    variants: dict[Name, TD3Variant] = Field(min_length=1)  # variants by the names that tables show
    relabelled: int = Field(ge=1, le=100)  # copies of each transition with such goals
    exploration: ExplorationConfig  # settings for learning online
    # deviation of the noise on actions that are not random, in units of half the box
    exploration_noise: float = Field(ge=0)
