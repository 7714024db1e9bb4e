"""The section `behaviour_cloning` of params.yaml."""

from typing import Literal

from pydantic import Field, field_validator

from tasks.common.config import Branch, Config, Idle, LocalPath, Seed
from tasks.language.configs.parts.training import UNUSED, AccumulatingConfig, check_heads_divide_width


class SizesConfig(Config):
    """The sizes of a new model."""

    width: int = Field(ge=8, le=10**5)  # width of the hidden states
    layers: int = Field(ge=1, le=1000)  # transformer blocks
    heads: int = Field(ge=1, le=1000)  # attention heads, which split the width

    _turn_pairs = field_validator("heads")(check_heads_divide_width)


class BehaviourCloningConfig(Config):
    """Which model clones the expert, its sizes where it is new, and how it is trained."""

    idle = (
        *UNUSED,
        Idle(("path",), {"init": ("scratch",)}),
        Idle(
            ("vocabulary", "width", "layers", "heads", "sizes", "context", "initializer_range"),
            {"init": ("directory",)},
        ),
    )

    seed: Seed  # all random draws of the stage follow from it
    init: Literal["scratch", "directory"]  # scratch: a new model and tokenizer | directory: an existing one
    path: LocalPath  # directory: a model in Hugging Face layout, such as data/sft
    vocabulary: int = Field(ge=300, le=10**6)  # tokens, the 256 bytes and the special tokens included
    width: int = Field(ge=8, le=10**5)  # width of the hidden states
    layers: int = Field(ge=1, le=1000)  # transformer blocks
    heads: int = Field(ge=1, le=1000)  # attention heads, which split the width
    sizes: dict[Branch, SizesConfig]  # other sizes than these, by the environment whose clone has them
    context: int = Field(ge=32, le=10**6)  # the longest episode, in tokens
    initializer_range: float = Field(gt=0)  # standard deviation of a new model's weights
    epochs: int = Field(ge=1, le=10**6)  # passes over the expert's episodes
    batch_size: int = Field(ge=1, le=10**6)  # episodes a gradient step
    learning_rate: float = Field(gt=0)  # highest learning rate, reached after the warm-up
    clip: float = Field(gt=0)  # largest norm of the gradient of all weights together; a larger one is scaled down
    training: AccumulatingConfig  # optimizer, schedule, memory

    _turn_pairs = field_validator("heads")(check_heads_divide_width)
