"""The section `cql` of params.yaml."""

from pydantic import Field

from tasks.common.config import Config, Name
from tasks.offline.configs.learners import DataSets, QConfig


class Weight(Config):
    """One variant: the weight of the conservative term."""

    discrete: float = Field(ge=0)  # weight for discrete actions
    continuous: float = Field(gt=0)  # weight for continuous actions


class ContinuousConfig(Config):
    """Further settings for continuous actions, of soft actor-critic."""

    gap: float | None  # value of the conservative term above which its weight rises; null keeps the weight
    samples: int = Field(ge=1, le=10**5)  # samples of each of the three kinds of actions whose values are held down
    critics: int = Field(ge=1, le=100)  # Q-functions trained side by side
    # learning rate of the policy, the temperature and the weight; `learning_rate` is that of the critics
    policy_learning_rate: float = Field(gt=0)
    target_rate: float = Field(gt=0, le=1)  # share of the way that the target critics move in each step


class CqlConfig(QConfig):
    """How conservative, and how the networks learn; the loss and the target network are DQN's, for discrete actions."""

    named_by = "alphas"

    datasets: DataSets  # keys of transitions.datasets that it learns from
    alphas: dict[Name, Weight] = Field(min_length=1)  # variant -> its weights of the conservative term
    continuous: ContinuousConfig  # settings for continuous actions
