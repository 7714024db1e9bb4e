"""The section `tabular_q` of params.yaml."""

from pydantic import Field

from tasks.common.config import Config
from tasks.offline.configs.learners import DataSets


class TabularQConfig(Config):
    """What is converged to, and how closely. Nothing here is random, so there is one seed."""

    datasets: DataSets
    gamma: float = Field(ge=0, lt=1)
    tolerance: float = Field(gt=0)  # sweeps end when no value changes by more
    states: int = Field(ge=1, le=10**8)  # distinct observations, at most
    evaluate_episodes: int = Field(ge=1, le=10**7)
