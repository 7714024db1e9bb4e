"""The section `returns` of params.yaml."""

from pydantic import Field

from tasks.common.config import Config, Seed


class FittedQConfig(Config):
    """How the off-policy estimate is fitted (tasks/algorithms/offline/fitted_q.py)."""

    most_steps: int = Field(ge=0)  # largest number of gradient steps; 0: no estimate
    # of how many seeds of a variant, the first ones, there is an estimate: each takes as long as a training
    seeds: int = Field(ge=1, le=10**6)
    # difference within which the estimate has settled, in units of the root mean square discounted return of the data
    tolerance: float = Field(gt=0)
    batch_size: int = Field(ge=1)  # transitions a gradient step
    hidden: list[int]  # width of each hidden layer
    learning_rate: float = Field(gt=0)  # learning rate of Adam
    target_rate: float = Field(gt=0, le=1)  # share of the way that the targets move in a step


class ReturnsConfig(Config):
    """What is measured, and how thoroughly."""

    seed: Seed  # seed of the first episode; each next one has one more
    episodes: int = Field(ge=1, le=10**7)  # episodes of each policy
    gamma: float = Field(ge=0, le=1)  # discount of the off-policy estimate, for policies without one of their own
    fitted_q: FittedQConfig  # how the off-policy estimate is fitted
