"""The section `report` of params.yaml."""

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from tasks.common.config import Config, Distinct, Seed
from tasks.language.configs.parts.policies import PolicyName


class ReportConfig(Config):
    """Which policies are shown, in the pipeline's order, and against which one they are judged."""

    seed: Seed  # all random draws of the stage follow from it
    # policies in the order in which they are shown; only these are trained
    policies: Annotated[list[PolicyName], Field(min_length=1), Distinct]
    baseline: PolicyName  # the policy that the others are compared with, problem by problem
    # the metric of an evaluation, such as strict_validation, by which the report names the best policy, and MLflow's alias `best` the best
    # version of each; of several metrics that begin so the largest counts, and after a minus the lowest is best
    best_by: str = Field(pattern=r"-?[a-z][a-z0-9_.]*")
    samples: int = Field(ge=0, le=10**5)  # problems shown with every policy's answer
    bootstrap: int = Field(ge=1, le=10**6)  # resamples for the interval of a difference

    @field_validator("baseline")
    @classmethod
    def _is_shown(cls, value: str, info: ValidationInfo) -> str:
        if value not in info.data.get("policies", [value]):
            raise ValueError("expected one of report.policies")
        return value
