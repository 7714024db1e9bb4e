"""The section `bear` of params.yaml."""

from typing import Literal

from pydantic import Field

from tasks.common.config import Sizes
from tasks.offline.configs.learners import DataSets, LearnerConfig


class BearConfig(LearnerConfig):
    """The constraint, the target, and the networks."""

    variant = "BEAR"
    needs_actions = "continuous"

    datasets: DataSets  # keys of branches.transitions that it learns from
    gamma: float = Field(gt=0, lt=1)  # discount of a reward one step later
    lam: float = Field(ge=0, le=1)  # weight of the lowest critic in the target, against the highest
    target_samples: int = Field(ge=1, le=1000)  # actions among which the target takes the best
    kernel: Literal["laplacian", "gaussian"]  # kernel of the maximum mean discrepancy
    bandwidth: float = Field(gt=0)  # bandwidth of the kernel
    mmd_samples: int = Field(ge=1, le=1000)  # actions drawn from the policy, and as many from the behaviour
    threshold: float = Field(ge=0)  # largest discrepancy that is allowed
    target_rate: float = Field(gt=0, le=1)  # share of the way that the targets move in a step
    warmup: int = Field(ge=0, le=10**9)  # steps in which the policy only follows the behaviour
    critics: int = Field(ge=1, le=100)  # Q-functions trained side by side
    hidden: Sizes  # width of each hidden layer
    learning_rate: float = Field(gt=0)  # learning rate of the policy
    critic_learning_rate: float = Field(gt=0)  # learning rate of the critics and of the behaviour model
    multiplier_learning_rate: float = Field(gt=0)  # learning rate of the multiplier that holds the constraint
