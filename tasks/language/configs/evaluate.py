"""The section `evaluate` of params.yaml."""

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from tasks.common.config import Config, Distinct, Seed


class EvaluateConfig(Config):
    """How much is sampled, and how."""

    seed: Seed  # all of the stage's draws follow from it
    problems: int = Field(ge=1, le=10**7)  # the first so many of the test table
    samples: int = Field(ge=1, le=10**5)  # a problem, at each temperature
    # sampled at, besides the greedy answer
    temperatures: Annotated[list[Annotated[float, Field(gt=0, le=100)]], Field(min_length=1), Distinct]
    # for the best temperature; 0 is greedy
    candidates: Annotated[list[Annotated[float, Field(ge=0, le=100)]], Field(min_length=1), Distinct]
    validation_problems: int = Field(ge=1, le=10**7)  # that choose it: the first so many of the validation table
    validation_samples: int = Field(ge=1, le=10**5)  # a problem, at each candidate
    # k of pass@k, each at most `samples`
    pass_at: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1), Distinct]
    max_new_tokens: int = Field(ge=1, le=10**5)  # tokens of an answer, at most; what is longer is cut off
    batch_size: int = Field(ge=1, le=10**6)  # problems in one batch
    reward_model_path: str  # a dep of the stage; a folder without a model leaves rewards and best-of-k out
    bootstrap: int = Field(ge=1, le=10**6)  # resamples behind an interval

    @field_validator("pass_at")
    @classmethod
    def _needs_k_samples(cls, value: list[int], info: ValidationInfo) -> list[int]:
        samples = info.data.get("samples", max(value))
        if max(value) > samples:
            raise ValueError(f"expected at most samples = {samples} in each place")
        return value
