"""The section `decision_transformer` of params.yaml."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from tasks.common.config import Branch, Config, Idle, LocalPath, Name
from tasks.offline.configs.learners import LearnerConfig

Init = Literal["random", "language", "synthetic"]


class ReturnTargets(Config):
    """What is asked of policies of one data set, and how far back they look."""

    targets: list[float] = Field(min_length=1)  # returns to ask for; the first one is asked for during training
    scale: float = Field(gt=0)  # number that returns are divided by before the model sees them
    context: int = Field(ge=1, le=10**6)  # K, the last steps that the model sees
    steps: int | None = Field(ge=1, le=10**9)  # gradient steps; null: as many as of the section


class LanguageConfig(Config):
    """The language model that trunks with init: language start from; with any of those, all trunks have its sizes."""

    source: Literal["directory", "hub"]  # directory | hub
    path: LocalPath  # directory: model and tokenizer in Hugging Face layout
    hub_id: str  # a repository of the Hugging Face hub
    hub_revision: str  # revision of the repository: a branch, a tag or a commit


class DTVariant(Config):
    """One variant: what its trunk starts from, and how much it learns of text."""

    init: Init  # what the trunk starts from: random | language | synthetic
    text: float = Field(ge=0)  # weight of the loss of text (LaMo's lambda); 0 reads no text


class TextConfig(Config):
    """Next-token prediction beside the prediction of actions, for variants with a weight of it."""

    path: LocalPath  # a folder with corpus.parquet, as the stage corpus writes it, or with .txt files
    rows: int = Field(ge=1, le=10**6)  # rows of text a step
    length: int = Field(ge=2, le=10**6)  # tokens a row


class SyntheticConfig(Config):
    """What trunks with init: synthetic learn first: next states of a random Markov chain."""

    states: int = Field(ge=2, le=10**8)  # states of the chain
    steps: int = Field(ge=1, le=10**9)  # gradient steps
    rows: int = Field(ge=1, le=10**6)  # sequences a step
    length: int = Field(ge=2, le=10**6)  # states of a sequence
    learning_rate: float = Field(gt=0)  # highest learning rate, reached after the warm-up


class DecisionTransformerConfig(LearnerConfig):
    """The model, how it is trained, and which returns are asked for."""

    named_by = "variants"
    idle = (
        Idle(("language",), {"variants.*.init": ("random", "synthetic"), "variants.*.text": (0,)}),
        Idle(("language.path",), {"language.source": ("hub",)}),
        Idle(("language.hub_id", "language.hub_revision"), {"language.source": ("directory",)}),
        Idle(("text",), {"variants.*.text": (0,)}),
        Idle(("synthetic",), {"variants.*.init": ("random", "language")}),
    )

    # data sets, keys of branches.transitions -> what their policies are asked for
    datasets: dict[Branch, ReturnTargets]
    variants: dict[Name, DTVariant] = Field(min_length=1)  # variants by the names that tables show
    width: int = Field(ge=1, le=10**5)  # width of a new trunk's hidden states
    layers: int = Field(ge=1, le=1000)  # layers of a new trunk
    heads: int = Field(ge=1, le=1000)  # attention heads of a new trunk, which split the width
    dropout: float = Field(ge=0, lt=1)  # share of activations dropped while learning
    learning_rate: float = Field(gt=0)  # highest learning rate, reached after the warm-up
    weight_decay: float = Field(ge=0)  # weight decay, decoupled from the gradient (AdamW, arXiv:1711.05101)
    warmup: int = Field(ge=0, le=10**9)  # steps of the warm-up
    last_rate: float = Field(gt=0, le=1)  # share of the learning rate that a cosine ends at; 1 keeps it
    clip: float = Field(gt=0)  # largest norm of the gradient of all weights together; a larger one is scaled down
    language: LanguageConfig  # language model that trunks with init: language start from
    text: TextConfig  # text that is learned beside the actions
    synthetic: SyntheticConfig  # what trunks with init: synthetic learn first

    @field_validator("heads")
    @classmethod
    def _check_heads_divide_width(cls, value: int, info: ValidationInfo) -> int:
        """Of a new trunk; one from a language model has its own sizes."""
        width = info.data.get("width", value)
        variants = info.data.get("variants", {})
        if all(variant.init != "language" for variant in variants.values()) and width % value:
            raise ValueError(f"expected a divisor of width = {width}")
        return value
