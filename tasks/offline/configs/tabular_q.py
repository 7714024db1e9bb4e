"""The section `tabular_q` of params.yaml."""

from pydantic import Field

from tasks.offline.configs.learners import DataSets, MethodConfig


class TabularQConfig(MethodConfig):
    """The discount, and how closely the values converge. Nothing here is random, so one seed is enough."""

    variant = "Q-learning"
    needs_actions = "discrete"

    datasets: DataSets  # keys of branches.transitions that it learns from
    gamma: float = Field(ge=0, lt=1)  # discount of a reward one step later
    tolerance: float = Field(gt=0)  # sweeps end when no value changes by more
    states: int = Field(ge=1, le=10**8)  # largest number of distinct observations
    evaluate_episodes: int = Field(ge=1, le=10**7)  # episodes that the table is played in at the end
