"""The section `reviews` of params.yaml."""

from typing import Literal

from pydantic import Field

from tasks.common.config import Config, Idle, LocalPath, Seed


class ReviewsConfig(Config):
    """Where reviews with a sentiment come from, and how many there are in each part."""

    idle = (
        Idle(("path",), {"source": ("generated", "hub")}),
        Idle(("hub_id", "hub_config", "hub_revision", "hub_split"), {"source": ("generated", "files")}),
        Idle(("text_column", "label_column", "opening_words"), {"source": ("generated",)}),
        Idle(("positive_share", "mixed", "negated"), {"source": ("files", "hub")}),
    )

    seed: Seed  # all random draws of the stage follow from it
    source: Literal["generated", "files", "hub"]  # generated: by a grammar of sentiment | files | hub
    path: LocalPath  # files: a .jsonl, .json or .parquet file, or a folder of them; a dep of the stage
    hub_id: str  # a repository of the Hugging Face hub
    hub_config: str | None  # configuration of the data set; null: its only one
    hub_revision: str  # revision of the repository: a branch, a tag or a commit
    hub_split: str  # split of the data set
    text_column: str = Field(min_length=1)  # column of files or a hub set with the review's text
    label_column: str = Field(min_length=1)  # column with its sentiment: 1 or 0, true or false, positive or negative
    # words of such a text that are its opening; the rest is the continuation
    opening_words: int = Field(ge=1, le=10**4)
    positive_share: float = Field(gt=0, lt=1)  # share of generated reviews that are positive
    mixed: float = Field(ge=0, le=1)  # share of generated judging sentences that concede the opposite before a `but`
    negated: float = Field(ge=0, le=1)  # share of the other ones that negate an opposite word
    # reviews in each part; where there are fewer in all, each part has its share of them
    corpus: int = Field(ge=1, le=10**7)  # reviews for pretraining
    train: int = Field(ge=2, le=10**7)  # reviews for fine-tuning, whose openings are steered from too
    test: int = Field(ge=1, le=10**7)  # reviews whose openings `steering` continues
    reward: int = Field(ge=4, le=10**7)  # labelled reviews for the classifier in the reward
    second: int = Field(ge=4, le=10**7)  # labelled reviews for the second classifier
    held_out: int = Field(ge=4, le=10**7)  # labelled reviews by which both classifiers are measured
