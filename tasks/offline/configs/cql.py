"""The section `cql` of params.yaml."""

from pydantic import Field, ValidationInfo, field_validator

from tasks.common.config import Config, Idle, Name
from tasks.offline.configs.learners import DataSets, FineTuningConfig, QConfig, check_fine_tuning_is_reached


class CQLVariant(Config):
    """One variant: the weight of the conservative term, whether it is calibrated, and whether learning goes on
    online.
    """

    discrete: float = Field(ge=0)  # weight for discrete actions
    continuous: float = Field(gt=0)  # weight for continuous actions
    calibrated: bool  # Cal-QL: no value is held down below what was earned from its state on
    online: bool  # goes on in the data set's environment


class TuningConfig(FineTuningConfig):
    """How a variant goes on online."""

    # share of random actions there, of discrete ones; continuous ones are drawn from the policy
    epsilon: float = Field(ge=0, le=1)


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

    named_by = "variants"
    idle = (Idle(("fine_tuning",), {"variants.*.online": (False,)}),)

    datasets: DataSets  # keys of branches.transitions that it learns from
    variants: dict[Name, CQLVariant] = Field(min_length=1)  # variants by the names that tables show
    fine_tuning: TuningConfig  # settings for variants that go on online
    continuous: ContinuousConfig  # settings for continuous actions

    @field_validator("fine_tuning")
    @classmethod
    def _check_fine_tuning_starts(cls, value: TuningConfig, info: ValidationInfo) -> TuningConfig:
        check_fine_tuning_is_reached(value, info.data)
        return value
