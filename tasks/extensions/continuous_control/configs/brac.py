"""The section `brac` of params.yaml."""

from pydantic import Field

from tasks.common.config import Sizes
from tasks.offline.configs.learners import DataSets, LearnerConfig


class BracConfig(LearnerConfig):
    """The penalty, and the networks."""

    variant = "BRAC-v"
    needs_actions = "continuous"

    datasets: DataSets  # keys of branches.transitions that it learns from
    gamma: float = Field(gt=0, lt=1)  # discount of a reward one step later
    alpha: float = Field(ge=0)  # weight of the KL divergence from the behaviour: value subtracted for each nat
    target_rate: float = Field(gt=0, le=1)  # share of the way that the target critics move in a step
    warmup: int = Field(ge=0, le=10**9)  # steps in which the policy only follows the cloned behaviour
    critics: int = Field(ge=1, le=100)  # Q-functions trained side by side
    hidden: Sizes  # width of each hidden layer
    learning_rate: float = Field(gt=0)  # learning rate of the policy and the clone
    critic_learning_rate: float = Field(gt=0)  # learning rate of the critic
