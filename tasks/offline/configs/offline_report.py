"""The section `offline_report` of params.yaml."""

from typing import Literal

from pydantic import Field

from tasks.common.config import Branch, Config, Name


class ReportedMethod(Config):
    """Whose policies are measured."""

    method: str  # the stage that trains it, such as bc or cql: one that learns from branches.transitions
    dataset: str  # one of the method's `datasets`


class OfflineExpectation(Config):
    """That one variant (or `data mean`, `data best`, `greedy behaviour`) scores higher than another on a data set."""

    dataset: str  # a data set of one of the `policies`
    higher: str  # a variant, or data mean | data best | greedy behaviour
    lower: str  # a variant or one of these, expected to score lower


class OfflineReportConfig(Config):
    """What is shown, in this order, and what was expected."""

    # name -> method and data set, in the order in which they are shown
    policies: dict[Branch, ReportedMethod] = Field(min_length=1)
    # the measure by which the report names the best variant of each data set, and MLflow's alias `best` the best
    # version of each model
    best_by: Literal["score", "return"]
    # variants with a value that was chosen by returns in the environment -> which value; tables mark them
    selected: dict[Name, str]
    expectations: list[OfflineExpectation]  # expectations that the report judges
