"""The section `cql` of params.yaml."""

from pydantic import Field

from tasks.common.config import Config, Name
from tasks.offline.configs.learners import DataSets, QConfig


class Weight(Config):
    """One row of the table: the weight of the conservative term."""

    discrete: float = Field(ge=0)  # for discrete actions
    continuous: float = Field(gt=0)  # for continuous actions


class ContinuousConfig(Config):
    """What soft actor-critic needs besides."""

    gap: float | None  # how far the conservative term may rise before its weight does; null holds the weight
    samples: int = Field(ge=1, le=10**5)  # of each of the three kinds of actions that are held down
    critics: int = Field(ge=1, le=100)  # Q-functions trained side by side
    policy_learning_rate: float = Field(gt=0)  # and of the temperature and the weight; `learning_rate` is the critics'
    target_rate: float = Field(gt=0, le=1)  # of the way that the target critics move in each step


class CqlConfig(QConfig):
    """How conservative, and how the networks learn; the loss and the target network are DQN's, for discrete actions."""

    datasets: DataSets  # keys of transitions.datasets that it learns from
    alphas: dict[Name, Weight] = Field(min_length=1)  # by variant
    continuous: ContinuousConfig  # for continuous actions
