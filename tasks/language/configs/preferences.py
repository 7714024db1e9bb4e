"""The section `preferences` of params.yaml."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from tasks.common.config import Config, Idle, LocalPath, Seed

HUB = ("hub_id", "hub_config", "hub_revision", "hub_split")
ANNOTATOR = ("criteria", "temperature", "length_bonus", "tie_margin", "strengths")
NO_JUDGEMENTS = "data/raw/judgements/none"  # a folder that stays as it is, whatever people judge


def _check_judgements_path(path: str, info: ValidationInfo) -> str:
    if info.data.get("source") == "people" and path == NO_JUDGEMENTS:
        raise ValueError("expected data/raw/judgements, or another folder or file, with source people")
    return path


# the file or folder that source people, named before it, reads
Judgements = Annotated[LocalPath, AfterValidator(_check_judgements_path)]
Criteria = Literal["manner", "rubric"]
Source = Literal["annotator", "people", "files", "hub"]


class Strengths(Config):
    """From which difference of noisy scores on the annotator calls one of two responses better, and by how much."""

    slightly: float = Field(ge=0)  # from here on "slightly better"; a smaller difference is "negligibly better"
    better: float = Field(ge=0)  # from here on "better"
    significantly: float = Field(ge=0)  # from here on "significantly better"

    @field_validator("better", "significantly")
    @classmethod
    def _check_ascending(cls, value: float, info: ValidationInfo) -> float:
        below = max(info.data.values(), default=0.0)
        if value < below:
            raise ValueError(f"expected at least {below}, the level before it")
        return value

    @property
    def bounds(self) -> tuple[float, ...]:
        """The differences from which the second, third and fourth level hold."""
        return self.slightly, self.better, self.significantly


class Shares(Config):
    """The share of each source's prompts that is taken, drawn by the seed; 0 leaves the source out."""

    annotator: float = Field(ge=0, le=1)  # of the prompts of the responses; those that people have judged are theirs
    people: float = Field(ge=0, le=1)  # of the prompts in the record of judgements
    files: float = Field(ge=0, le=1)  # of the prompts in pairs_path
    hub: float = Field(ge=0, le=1)  # of the prompts in the hub's data set

    @model_validator(mode="after")
    def _check_any_share(self) -> "Shares":
        if not any(self.model_dump().values()):
            raise ValueError("expected a share above 0 for at least one source")
        return self


class PreferencesConfig(Config):
    """Where pairs come from, how the simulated annotator perceives points, and the split."""

    idle = (
        Idle(ANNOTATOR, {"source": ("people", "files", "hub")}),
        Idle(
            ANNOTATOR,
            {"source": ("mixture",), "mixture.annotator": (0.0,)},
        ),
        Idle(HUB, {"source": ("annotator", "people", "files")}),
        Idle(HUB, {"source": ("mixture",), "mixture.hub": (0.0,)}),
        Idle(("pairs_path",), {"source": ("annotator", "people", "files", "hub")}),
        Idle(("pairs_path",), {"source": ("mixture",), "mixture.files": (0.0,)}),
        Idle(("judgements", "minimum", "disagreement"), {"source": ("annotator", "files", "hub")}),
        Idle(("judgements", "minimum", "disagreement"), {"source": ("mixture",), "mixture.people": (0.0,)}),
        Idle(("mixture",), {"source": ("annotator", "people", "files", "hub")}),
    )

    seed: Seed  # all random draws of the stage follow from it
    # annotator: a simulated one ranks responses | people: what they judged (posttrain label) | files | hub | mixture of
    # these
    source: Literal["annotator", "people", "files", "hub", "mixture"]
    # a dep of the stage. annotator, people, mixture: the responses | files: a .jsonl, .json or .parquet file, or a
    # folder of them | hub: data/raw/preferences. People's pairs are split as the annotator's, by the prompts of the
    # responses, where they are there
    path: LocalPath
    pairs_path: LocalPath  # the files of a mixture, a dep: a .jsonl, .json or .parquet file, or a folder of them
    judgements: Judgements  # what people judged, a dep: the file or folder that `posttrain label` writes
    minimum: int = Field(ge=1, le=10**7)  # judgements that are waited for
    # several people on one pair: each one's judgement is a pair of its own | the majority's, by the mean of the signed
    # strengths
    disagreement: Literal["each", "majority"]
    mixture: Shares  # source mixture: the share of each source's prompts that is taken
    hub_id: str  # a repository of the Hugging Face hub
    hub_config: str | None  # configuration of the data set; null: its only one
    hub_revision: str  # revision of the repository: a branch, a tag or a commit
    hub_split: str  # split of the data set
    # of the annotator. manner: what can be judged without the right answer (results named, steps valid, brief, in
    # order) | rubric: correctness, reasoning and clarity by the reference
    criteria: Criteria
    temperature: float = Field(ge=0)  # scale of the Bradley-Terry noise in points; 0 is a perfect annotator
    # points that the annotator adds for each token of an answer: a taste for long ones
    length_bonus: float = Field(ge=0)
    tie_margin: float = Field(ge=0)  # noisy scores at most this far apart are a tie
    # differences of noisy scores from which one response is slightly better, better, significantly better
    strengths: Strengths
    test_share: float = Field(gt=0, lt=1)  # share of the prompts that is held out

    @field_validator("mixture")
    @classmethod
    def _check_people_judgements(cls, value: Shares, info: ValidationInfo) -> Shares:
        judged = info.data.get("judgements") != NO_JUDGEMENTS
        if info.data.get("source") == "mixture" and value.people and not judged:
            raise ValueError("expected people: 0.0, or judgements: data/raw/judgements, with source mixture")
        return value

    @property
    def sources(self) -> dict[Source, float]:
        """The sources that are taken, with the share of their prompts."""
        if self.source == "mixture":
            mixture = self.mixture
            shares: dict[Source, float] = {
                "annotator": mixture.annotator,
                "people": mixture.people,
                "files": mixture.files,
                "hub": mixture.hub,
            }
            return {name: share for name, share in shares.items() if share}
        return {self.source: 1.0}
