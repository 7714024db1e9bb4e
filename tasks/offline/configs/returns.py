"""The section `returns` of params.yaml."""

from pydantic import Field

from tasks.common.config import Config, Seed


class FittedQConfig(Config):
    """How the off-policy estimate is fitted (tasks/algorithms/offline/fitted_q.py)."""

    most_steps: int = Field(ge=0)  # 0: no estimate
    tolerance: float = Field(gt=0)  # within which it settles, in root mean square discounted returns of the data
    batch_size: int = Field(ge=1)  # transitions a gradient step
    hidden: list[int]  # width of each hidden layer
    learning_rate: float = Field(gt=0)  # of Adam
    target_rate: float = Field(gt=0, le=1)  # of the way that the targets move in a step


class ReturnsConfig(Config):
    """What is measured, and how thoroughly."""

    seed: Seed  # of the first episode; the next one's is one more
    episodes: int = Field(ge=1, le=10**7)  # of each policy
    gamma: float = Field(ge=0, le=1)  # of the off-policy estimate, for policies without a discount of their own
    fitted_q: FittedQConfig  # how the off-policy estimate is fitted
