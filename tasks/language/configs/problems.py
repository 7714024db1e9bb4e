"""The section `problems` of params.yaml."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from tasks.common.config import Config, Idle, LocalPath, Seed


class HabitsConfig(Config):
    """Shares of the generated demonstrations.

    But for `shortcut` and `repeated` a habit is more frequent with some things and less with others.
    """

    shortcut: float = Field(ge=0, le=1)  # that give the answer without the working
    unnamed: float = Field(ge=0, le=1)  # whose results do not say of what they are
    opening: float = Field(ge=0, le=1)  # that begin with a sentence that says nothing
    closing: float = Field(ge=0, le=1)  # that have such a sentence before the answer
    repeated: float = Field(ge=0, le=1)  # that say a step twice


class ProblemsConfig(Config):
    """Where problems come from, and at most how many there are in each split."""

    idle = (
        Idle(("path",), {"source": ("generated", "hub")}),
        Idle(("hub_id", "hub_config", "hub_revision"), {"source": ("generated", "files")}),
        Idle(
            ("one_step", "two_steps", "three_steps", "largest", "other_kinds", "habits"), {"source": ("files", "hub")}
        ),
    )

    seed: Seed  # all random draws of the stage follow from it
    source: Literal["generated", "files", "hub"]  # generated | files | hub
    # files: a directory with train.jsonl and test.jsonl, rows {"question": .., "answer": "steps #### N"}
    path: LocalPath
    hub_id: str  # a repository of the Hugging Face hub
    hub_config: str  # configuration of the data set
    hub_revision: str  # revision of the repository: a branch, a tag or a commit
    train: int = Field(ge=1, le=10**7)  # largest number of training problems
    validation: int = Field(ge=1, le=10**7)  # largest number of validation problems
    test: int = Field(ge=1, le=10**7)  # largest number of test problems
    one_step: float = Field(ge=0)  # weight of problems of one step among the generated ones
    two_steps: float = Field(ge=0)  # weight of problems of two steps
    three_steps: float = Field(ge=0)  # weight of problems of three steps
    largest: int = Field(ge=30, le=10**9)  # no number in a generated problem exceeds this
    # generated problems in each of four test sets of another kind: longer, larger numbers, other words, unseen sums; 0:
    # no such sets
    other_kinds: int = Field(ge=0, le=10**6)
    habits: HabitsConfig  # how often generated demonstrations, which are all right, have which manner

    @field_validator("three_steps")
    @classmethod
    def _check_positive_weight(cls, value: float, info: ValidationInfo) -> float:
        if not (value or info.data.get("one_step", 1) or info.data.get("two_steps", 1)):
            raise ValueError("expected a number above 0 here or in one_step or two_steps")
        return value
