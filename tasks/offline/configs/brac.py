"""The section `brac` of params.yaml."""

from pydantic import Field

from tasks.common.config import Sizes
from tasks.offline.configs.learners import DataSets, LearnerConfig


class BracConfig(LearnerConfig):
    """The penalty, and the networks."""

    datasets: DataSets
    gamma: float = Field(gt=0, lt=1)
    alpha: float = Field(ge=0)  # value that one nat away from the behaviour costs
    target_rate: float = Field(gt=0, le=1)  # of the way that the target critics move in a step
    warmup: int = Field(ge=0, le=10**9)  # steps in which the policy only follows the cloned behaviour
    critics: int = Field(ge=1, le=100)
    hidden: Sizes
    learning_rate: float = Field(gt=0)  # of the policy and the clone
    critic_learning_rate: float = Field(gt=0)
