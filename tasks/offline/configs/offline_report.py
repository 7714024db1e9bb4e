"""The section `offline_report` of params.yaml."""

from typing import Literal

from pydantic import Field

from tasks.common.config import Branch, Config, Name


class Measured(Config):
    """Whose policies are measured."""

    method: Literal["tabular_q", "dqn", "bc", "cql", "awr", "bear", "brac", "decision_transformer"]
    dataset: str  # one of the method's `datasets`


class Expectation(Config):
    """That one variant (or `data mean`, `data best`, `greedy behaviour`) scores higher than another on a data set."""

    dataset: str  # one of those of `policies`
    higher: str
    lower: str


class OfflineReportConfig(Config):
    """What is shown, in this order, and what was expected."""

    policies: dict[Branch, Measured] = Field(min_length=1)
    selected: dict[
        Name, str
    ]  # variants with a value that returns in the environment chose, and which: marked in tables
    expectations: list[Expectation]
