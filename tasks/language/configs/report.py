"""The section `report` of params.yaml."""

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from tasks.common.config import Config, Distinct, Seed
from tasks.language.configs.parts.names import PolicyName


class ReportConfig(Config):
    """Which policies are shown, in the pipeline's order, and against which one they are judged."""

    seed: Seed  # all random draws of the stage follow from it
    # policies in the order in which they are shown; only these are trained
    policies: Annotated[list[PolicyName], Field(min_length=1), Distinct]
    baseline: PolicyName  # the policy that the others are compared with, problem by problem
    # policies that no method has trained, such as SFT carried on for as many answers; the best policy counts against
    # the better of those that are shown
    controls: Annotated[list[PolicyName], Distinct]
    margin: float = Field(ge=0, le=100)  # points of accuracy within which two policies are called equal
    # the metric of an evaluation, such as strict_validation, by which the report names the best policy, and MLflow's
    # alias `best` the best version of each; of several metrics that begin so the largest counts, and after a minus the
    # lowest is best
    best_by: str = Field(pattern=r"-?[a-z][a-z0-9_.]*")
    samples: int = Field(ge=0, le=10**5)  # problems shown with every policy's answer
    bootstrap: int = Field(ge=1, le=10**6)  # resamples for an interval over prompts

    @field_validator("baseline")
    @classmethod
    def _check_baseline_is_shown(cls, value: str, info: ValidationInfo) -> str:
        if value not in info.data.get("policies", [value]):
            raise ValueError("expected one of report.policies")
        return value

    @field_validator("controls")
    @classmethod
    def _check_controls_exclude_baseline(cls, value: list[str], info: ValidationInfo) -> list[str]:
        if info.data.get("baseline") in value:
            raise ValueError("expected policies other than report.baseline")
        return value
