"""The section `awr` of params.yaml."""

from pydantic import Field

from tasks.common.config import Sizes
from tasks.offline.configs.learners import DataSets, LearnerConfig


class AwrConfig(LearnerConfig):
    """The weights, the returns that they are made of, and the networks."""

    datasets: DataSets
    gamma: float = Field(gt=0, le=1)
    lam: float = Field(ge=0, le=1)  # of the returns: 0 is one step and then the value, 1 all recorded rewards
    beta: float = Field(gt=0)  # in deviations of the advantage; small trusts the best actions only
    max_weight: float = Field(gt=0)
    refresh_every: int = Field(ge=1, le=10**9)  # steps between two valuations of the data set
    hidden: Sizes
    learning_rate: float = Field(gt=0)  # of the policy
    value_learning_rate: float = Field(gt=0)
