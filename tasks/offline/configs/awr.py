"""The section `awr` of params.yaml."""

from pydantic import Field

from tasks.common.config import Sizes
from tasks.offline.configs.learners import DataSets, LearnerConfig


class AwrConfig(LearnerConfig):
    """The weights, the returns that they are made of, and the networks."""

    variant = "AWR"

    datasets: DataSets  # keys of branches.transitions that it learns from
    gamma: float = Field(gt=0, le=1)  # discount of a reward one step later
    lam: float = Field(ge=0, le=1)  # lambda of the returns: 0 is one step and then the value, 1 all recorded rewards
    # temperature of the weights, in standard deviations of the advantage; a small one trusts the best actions only
    beta: float = Field(gt=0)
    max_weight: float = Field(gt=0)  # where the exponential weights are cut off
    refresh_every: int = Field(ge=1, le=10**9)  # steps between two valuations of the data set
    hidden: Sizes  # width of each hidden layer
    learning_rate: float = Field(gt=0)  # learning rate of the policy
    value_learning_rate: float = Field(gt=0)  # learning rate of the value
