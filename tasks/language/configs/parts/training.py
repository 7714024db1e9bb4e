"""The part `training` of every section that trains a language model: optimizer, schedule, memory."""

from typing import Annotated, Literal

from pydantic import Field, ValidationError, ValidationInfo, ValidatorFunctionWrapHandler, WrapValidator

from tasks.common.config import Config, Idle

Names = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]


def _validate_adapter_targets(value: object, validated: ValidatorFunctionWrapHandler) -> object:
    """One error for both forms, instead of pydantic's for each."""
    try:
        return validated(value)
    except ValidationError:
        raise ValueError("expected 'all-linear' or a list of names of layers") from None


Targets = Annotated[Literal["all-linear"] | Names, WrapValidator(_validate_adapter_targets)]
UNUSED = (Idle(("training.final_rate",), {"training.schedule": ("constant",)}),)  # of every section with this part


def check_heads_divide_width(value: int, info: ValidationInfo) -> int:
    """Of a new model: attention splits the width among its heads, whose rotary embeddings turn pairs."""
    width = info.data.get("width", 2 * value)
    if info.data.get("init", "scratch") == "scratch" and width % (2 * value):
        raise ValueError(f"expected twice its number to divide width = {width}")
    return value


class TrainingConfig(Config):
    """How a model's weights are updated; learning rate and clip stand beside it in the section."""

    # adamw | muon: Muon for hidden matrices and AdamW for the rest (arXiv:2502.16982)
    optimizer: Literal["adamw", "muon"]
    # constant | linear | cosine: how the learning rate goes from its highest, behind the warm-up, to its last
    schedule: Literal["constant", "linear", "cosine"]
    warmup: float = Field(ge=0, le=1)  # share of the steps in which the learning rate rises to its highest
    final_rate: float = Field(ge=0, le=1)  # the last learning rate as a share of the highest
    # AdamW's decay rates of the mean and of the square of the gradient (arXiv:1412.6980)
    betas: list[Annotated[float, Field(ge=0, lt=1)]] = Field(min_length=2, max_length=2)
    weight_decay: float = Field(ge=0)  # weight decay, decoupled from the gradient (AdamW, arXiv:1711.05101)
    # fp32 | bf16: computed in bfloat16, with weights and optimizer in fp32 besides | pure_bf16: all in bfloat16
    precision: Literal["fp32", "bf16", "pure_bf16"]
    gradient_checkpointing: bool  # whether layers are computed again in the backward pass: less memory, more time


class AccumulatingConfig(TrainingConfig):
    """The same for stages whose batch is a batch of data; stages that learn from samples have `micro_batch` in its
    place.
    """

    # parts in which a batch is passed through the model; their gradients add up to the batch's, so only memory and time
    # change
    accumulate: int = Field(ge=1, le=10**6)


class AdapterConfig(Config):
    """A low-rank adapter (LoRA, arXiv:2106.09685) that is trained in place of the model's own weights."""

    rank: int = Field(ge=1, le=10**4)  # rank of the two factors beside each adapted layer
    alpha: float = Field(gt=0)  # what the factors add is scaled by alpha / rank
    # all-linear: all linear layers but the head | or names of layers, such as q_proj and v_proj
    targets: Targets
    merge: bool  # whether the out is the model with its adapter added in, or both side by side


class DroppingAdapterConfig(AdapterConfig):
    """The same for stages that train with dropout on; the others have none."""

    dropout: float = Field(ge=0, lt=1)  # share of an adapter's inputs that are dropped
