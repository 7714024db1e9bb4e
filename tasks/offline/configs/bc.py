"""The section `bc` of params.yaml."""

from typing import Annotated

from pydantic import Field

from tasks.common.config import Name, Sizes
from tasks.offline.configs.learners import DataSets, LearnerConfig


class BcConfig(LearnerConfig):
    """How the policy is fitted, and to how much of the data."""

    datasets: DataSets
    shares: dict[Name, Annotated[float, Field(gt=0, le=1)]] = Field(
        min_length=1
    )  # variant -> share of the trajectories kept, the best by return
    hidden: Sizes
    learning_rate: float = Field(gt=0)
