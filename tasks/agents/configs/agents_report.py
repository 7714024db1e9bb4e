"""The section `agents_report` of params.yaml."""

from typing import Literal

from pydantic import Field

from tasks.common.config import Branch, Config


class ReportedPolicy(Config):
    """Whose play is measured."""

    stage: Literal["behaviour_cloning", "agents", "budgets"]  # the stage that trains it
    branch: str  # the stage's branch: an environment, or a key of the stage's policies
    # a key of branches.expert_episodes: where it is measured, which may be another one than where it was trained
    environment: str


class AgentExpectation(Config):
    """That one policy earns more than another, or learns faster."""

    higher: str  # a key of agents_report.policies
    lower: str  # another one
    # return: in the games of the test split | learning: the mean return of all training episodes
    by: Literal["return", "learning"]


class AgentsReportConfig(Config):
    """What is shown, in this order, and what was expected."""

    policies: dict[Branch, ReportedPolicy] = Field(min_length=1)  # policies by a name of your own
    expectations: list[AgentExpectation]  # expectations that the report judges
    shown: int = Field(ge=0, le=1000)  # episodes of each policy that can be read turn by turn
