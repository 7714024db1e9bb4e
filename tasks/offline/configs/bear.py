"""The section `bear` of params.yaml."""

from typing import Literal

from pydantic import Field

from tasks.common.config import Sizes
from tasks.offline.configs.learners import DataSets, LearnerConfig


class BearConfig(LearnerConfig):
    """The constraint, the target, and the networks."""

    datasets: DataSets  # keys of transitions.datasets that it learns from
    gamma: float = Field(gt=0, lt=1)  # discount of a reward one step later
    lam: float = Field(ge=0, le=1)  # weight of the lowest critic in the target, against the highest
    target_samples: int = Field(ge=1, le=1000)  # actions that the target takes the best of
    kernel: Literal["laplacian", "gaussian"]  # of the maximum mean discrepancy
    bandwidth: float = Field(gt=0)  # of the kernel
    mmd_samples: int = Field(ge=1, le=1000)  # actions of policy and behaviour, each
    threshold: float = Field(ge=0)  # on the discrepancy
    target_rate: float = Field(gt=0, le=1)  # of the way that the targets move in a step
    warmup: int = Field(ge=0, le=10**9)  # steps in which the policy only follows the behaviour
    critics: int = Field(ge=1, le=100)  # Q-functions trained side by side
    hidden: Sizes  # width of each hidden layer
    learning_rate: float = Field(gt=0)  # of the policy
    critic_learning_rate: float = Field(gt=0)  # and of the behaviour model
    multiplier_learning_rate: float = Field(gt=0)  # of the multiplier that holds the constraint
