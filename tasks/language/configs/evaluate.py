"""The section `evaluate` of params.yaml."""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from tasks.common.config import Config, Distinct, Idle, LocalPath, Seed


class EvaluateConfig(Config):
    """Which test problems are asked, how much is sampled, and how."""

    idle = (
        Idle(("path",), {"source": ("problems", "hub")}),
        Idle(("hub_id", "hub_config", "hub_revision", "hub_split"), {"source": ("problems", "files")}),
    )

    seed: Seed  # all random draws of the stage follow from it
    source: Literal["problems", "files", "hub"]  # where test problems come from: the stage problems | files | hub
    path: LocalPath  # files: a .jsonl, .json or .parquet file, or a folder of them; a dep of the stage
    hub_id: str  # a repository of the Hugging Face hub
    hub_config: str | None  # configuration of the data set; null: its only one
    hub_revision: str  # revision of the repository: a branch, a tag or a commit
    hub_split: str  # split of the data set
    problems: int = Field(ge=1, le=10**7)  # test problems, the first of the table
    samples: int = Field(ge=1, le=10**5)  # samples of each problem at each temperature
    # temperatures that are sampled at, besides the greedy answer
    temperatures: Annotated[list[Annotated[float, Field(gt=0, le=100)]], Field(min_length=1), Distinct]
    # candidates for the best temperature; 0 is greedy
    candidates: Annotated[list[Annotated[float, Field(ge=0, le=100)]], Field(min_length=1), Distinct]
    validation_problems: int = Field(ge=1, le=10**7)  # the first validation problems, which choose the best temperature
    validation_samples: int = Field(ge=1, le=10**5)  # samples of each problem at each candidate
    # k of pass@k, each at most `samples`
    pass_at: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1), Distinct]
    max_new_tokens: int = Field(ge=1, le=10**5)  # largest number of tokens of an answer; a longer one is cut off
    batch_size: int = Field(ge=1, le=10**6)  # problems in one batch
    # folder of the reward model, a dep; without a model there are no rewards and no best-of-k
    reward_model_path: LocalPath
    # preference pairs that are judged, a dep: data/preferences (its test part), a file or a folder; an empty one: none
    pairs_path: LocalPath
    strip_thinking: bool  # whether answers are judged without `<think>...</think>`; an unclosed block is no answer
    bootstrap: int = Field(ge=1, le=10**6)  # resamples for an interval

    @field_validator("pass_at")
    @classmethod
    def _check_pass_at_samples(cls, value: list[int], info: ValidationInfo) -> list[int]:
        samples = info.data.get("samples", max(value))
        if max(value) > samples:
            raise ValueError(f"expected at most samples = {samples} in each place")
        return value
