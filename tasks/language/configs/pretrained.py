"""The section `pretrained` of params.yaml."""

from typing import Literal

from pydantic import Field, field_validator

from tasks.common.config import Config, Idle, LocalPath, Seed
from tasks.language.configs.parts.training import UNUSED, AccumulatingConfig, check_heads_divide_width

# Model types that transformers marks as stateful (`_is_stateful`); the command line does not import transformers.
RECURRENT = (
    *("bailing_hybrid", "bamba", "deepseek_v4", "falcon_h1", "falcon_mamba", "granitemoehybrid", "jamba"),
    *("kimi_linear", "mamba", "mamba2", "nemotron_h", "olmo_hybrid", "qwen3_5", "qwen3_5_moe"),
    *("qwen3_5_moe_text", "qwen3_5_text", "qwen3_next", "qwen4_exp", "qwen4_exp_text", "recurrent_gemma"),
    *("rwkv", "xlstm", "zamba", "zamba2", "zaya"),
)


class PretrainedConfig(Config):
    """Which model, its sizes, and how it is trained where it starts from scratch."""

    idle = (
        *UNUSED,
        Idle(("path",), {"init": ("scratch", "hub")}),
        Idle(("hub_id", "hub_revision"), {"init": ("scratch", "directory")}),
        Idle(("width", "layers", "heads", "context", "initializer_range"), {"init": ("directory", "hub")}),
        Idle(("batch_size", "steps", "learning_rate", "clip", "training"), {"init": ("directory", "hub")}),
    )

    seed: Seed  # all random draws of the stage follow from it
    init: Literal["scratch", "directory", "hub"]  # scratch: a new model | directory, hub: an existing one
    path: LocalPath  # directory: a model in Hugging Face layout
    hub_id: str  # a repository of the Hugging Face hub
    hub_revision: str  # revision of the repository: a branch, a tag or a commit
    width: int = Field(ge=8, le=10**5)  # width of the hidden states
    layers: int = Field(ge=1, le=1000)  # transformer blocks
    heads: int = Field(ge=1, le=1000)  # attention heads, which split the width
    context: int = Field(ge=32, le=10**6)  # the longest sequence, and the length of a training row
    initializer_range: float = Field(gt=0)  # standard deviation of a new model's weights
    batch_size: int = Field(ge=1, le=10**6)  # rows of `context` tokens in a batch
    steps: int = Field(ge=1, le=10**9)  # optimizer steps
    learning_rate: float = Field(gt=0)  # highest learning rate, reached after the warm-up
    clip: float = Field(gt=0)  # largest norm of the gradient of all weights together; a larger one is scaled down
    training: AccumulatingConfig  # optimizer, schedule, memory

    _turn_pairs = field_validator("heads")(check_heads_divide_width)
