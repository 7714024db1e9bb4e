"""The section `iql` of params.yaml."""

from pydantic import Field, ValidationInfo, field_validator

from tasks.common.config import Config, Idle, Name, Sizes
from tasks.offline.configs.learners import DataSets, FineTuningConfig, LearnerConfig, check_fine_tuning_is_reached


class IQLVariant(Config):
    """One variant of the method."""

    online: bool  # goes on in the data set's environment


class IqlConfig(LearnerConfig):
    """The expectile, the weights, and the networks."""

    named_by = "variants"
    idle = (Idle(("fine_tuning",), {"variants.*.online": (False,)}),)

    variants: dict[Name, IQLVariant] = Field(min_length=1)  # variants by the names that tables show
    fine_tuning: FineTuningConfig  # settings for variants that go on online
    datasets: DataSets  # keys of branches.transitions that it learns from
    gamma: float = Field(gt=0, lt=1)  # discount of a reward one step later
    # tau of the value: 0.5 is the mean of what the data's actions are worth, and near 1 it nears the best of them
    expectile: float = Field(gt=0, lt=1)
    beta: float = Field(ge=0)  # inverse temperature of the weights, in units of 1 / return; 0 clones the behaviour
    max_weight: float = Field(gt=0)  # where the exponential weights are cut off
    target_rate: float = Field(gt=0, le=1)  # share of the way that the target critics move in a step
    critics: int = Field(ge=1, le=100)  # Q-functions trained side by side
    hidden: Sizes  # width of each hidden layer
    learning_rate: float = Field(gt=0)  # learning rate of the policy
    critic_learning_rate: float = Field(gt=0)  # learning rate of the value and the critics

    @field_validator("fine_tuning")
    @classmethod
    def _check_fine_tuning_starts(cls, value: FineTuningConfig, info: ValidationInfo) -> FineTuningConfig:
        check_fine_tuning_is_reached(value, info.data)
        return value
