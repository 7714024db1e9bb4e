"""The section `td3_bc` of params.yaml."""

from pydantic import Field

from tasks.common.config import Sizes
from tasks.offline.configs.learners import DataSets, LearnerConfig


class TwinDelayedConfig(LearnerConfig):
    """What methods on twin delayed DDPG have in common."""

    datasets: DataSets  # keys of branches.transitions that it learns from
    gamma: float = Field(gt=0, lt=1)  # discount of a reward one step later
    noise: float = Field(ge=0)  # deviation of the noise on the target policy's actions, in units of half the box
    noise_clip: float = Field(ge=0)  # largest noise
    target_rate: float = Field(gt=0, le=1)  # share of the way that the targets move when the policy learns
    policy_every: int = Field(ge=1, le=10**9)  # steps of the critics for each step of the policy
    critics: int = Field(ge=1, le=100)  # Q-functions trained side by side
    hidden: Sizes  # width of each hidden layer
    learning_rate: float = Field(gt=0)  # learning rate of the policy
    critic_learning_rate: float = Field(gt=0)  # learning rate of the critics


class Td3BcConfig(TwinDelayedConfig):
    """The weight of the values against the data's actions, and the networks."""

    variant = "TD3+BC"
    needs_actions = "continuous"

    # weight of the value, scaled to a mean size of 1, against the distance to the data's actions
    alpha: float = Field(ge=0)
