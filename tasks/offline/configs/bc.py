"""The section `bc` of params.yaml."""

from typing import Annotated, Literal

from pydantic import Field

from tasks.common.config import Name, Sizes
from tasks.offline.configs.learners import DataSets, LearnerConfig


class BcConfig(LearnerConfig):
    """How the policy is fitted, and to how much of the data."""

    named_by = "shares"

    datasets: DataSets  # keys of branches.transitions that it learns from
    # variant -> share of the trajectories kept, the best by return
    shares: dict[Name, Annotated[float, Field(gt=0, le=1)]] = Field(min_length=1)
    # which goal of its own trajectory takes the place of the one asked for: none | future | final
    relabel: Literal["none", "future", "final"]
    hidden: Sizes  # width of each hidden layer
    learning_rate: float = Field(gt=0)  # learning rate of Adam
