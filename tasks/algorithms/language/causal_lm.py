"""What the algorithms and the stages need of a causal language model, as Protocols. Hugging Face's models fit them
unchanged.

They are for the type checker alone: no model inherits from them, and none is tested against them at runtime.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NotRequired, Protocol, Self, TypedDict

from torch import Tensor, nn


class CacheLayer(Protocol):
    """The keys and values (B, heads, length, size) that one layer of a model has kept."""

    keys: Tensor
    values: Tensor

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows only, repeated ones too."""
        ...


class KeyValueCache(Protocol):
    """The keys and values of all layers; a model that is given a cache adds those of the tokens it reads."""

    layers: list[CacheLayer]

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows only, repeated ones too."""
        ...


class SequenceInputs(TypedDict):
    """B rows of T tokens without a cache."""

    input_ids: Tensor  # (B, T) long
    attention_mask: Tensor  # (B, T) long, 0 on padding; or (B, 1, T, T) bool, True where token t sees token s
    position_ids: NotRequired[Tensor]  # (B, T) long


class ModelInputs(TypedDict):
    """B rows of T tokens that follow the C tokens of a cache; C is 0 without a cache."""

    input_ids: Tensor  # (B, T) long
    attention_mask: Tensor  # (B, C + T) long, 0 on padding
    position_ids: Tensor  # (B, T) long
    use_cache: bool


class CachedInputs(ModelInputs):
    """Inputs together with the cache that they follow."""

    past_key_values: KeyValueCache


class HiddenStates(Protocol):
    """The output of a body."""

    last_hidden_state: Tensor  # (B, T, D)
    past_key_values: KeyValueCache


class Logits(Protocol):
    """The output of a causal language model."""

    logits: Tensor  # (B, T, V)
    past_key_values: KeyValueCache


class Parametrised(Protocol):
    """Anything with weights, as torch's modules are."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """The weights."""
        ...


class Body(Parametrised, Protocol):
    """A causal language model without its head."""

    def __call__(
        self,
        *,
        input_ids: Tensor,
        attention_mask: Tensor,
        position_ids: Tensor,
        use_cache: bool,
        past_key_values: KeyValueCache = ...,
    ) -> HiddenStates:
        """The state of each token."""
        ...


class CausalLM(Parametrised, Protocol):
    """A causal language model: entry t of its logits predicts token t + 1."""

    def __call__(
        self,
        *,
        input_ids: Tensor,
        attention_mask: Tensor = ...,
        position_ids: Tensor = ...,
        use_cache: bool,
        past_key_values: KeyValueCache = ...,
        logits_to_keep: int = ...,
    ) -> Logits:
        """The logits of each token, or of the last `logits_to_keep`."""
        ...

    def train(self) -> object:
        """Dropout on."""
        ...

    def eval(self) -> object:
        """Dropout off."""
        ...


class ModelConfig(Protocol):
    """The sizes of a model, as its config.json has them."""

    @property
    def hidden_size(self) -> int:
        """D, the width of its states."""
        ...


class CausalLMWithBody(CausalLM, Protocol):
    """A causal language model whose body can be used without its head."""

    @property
    def base_model(self) -> Body:
        """The body."""
        ...

    @property
    def config(self) -> ModelConfig:
        """Its sizes."""
        ...


class SequenceClassifier(CausalLMWithBody, Protocol):
    """A body with a linear head that scores whole sequences; its logits are scores of sequences, not of tokens."""

    score: nn.Linear


class SwitchableAttention(CausalLM, Protocol):
    """A model of transformers whose implementation of attention can be chosen."""

    def set_attn_implementation(self, attn_implementation: str) -> None:
        """Choose the attention that is registered under this name."""
        ...


class GenerationConfig(Protocol):
    """How a model is sampled from, as its generation_config.json has it."""

    eos_token_id: int | list[int] | None


class PretrainedModelConfig(ModelConfig, Protocol):
    """A config.json."""

    model_type: str
    pad_token_id: int | None

    def get_text_config(self) -> object:
        """The part of the config that describes the language model; some models have other parts too."""
        ...


class PretrainedModel(CausalLMWithBody, Protocol):
    """A causal language model or a classifier as the stages load, train and save it."""

    name_or_path: str
    base_model_prefix: str

    @property
    def config(self) -> PretrainedModelConfig:
        """Its config.json."""
        ...

    def modules(self) -> Iterator[nn.Module]:
        """All parts, itself included."""
        ...

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The weights with their names."""
        ...

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """All parts with their names."""
        ...

    def get_submodule(self, target: str) -> nn.Module:
        """The part of this name."""
        ...

    def get_input_embeddings(self) -> nn.Embedding:
        """The embeddings of the tokens."""
        ...

    def get_output_embeddings(self) -> nn.Module | None:
        """The head over tokens; None where there is none."""
        ...

    def num_parameters(self) -> int:
        """How many weights it has."""
        ...

    def eval(self) -> Self:
        """Dropout off."""
        ...

    def to(self, device: str) -> Self:
        """Move it."""
        ...

    def activation_checkpointing_enable(self, activation_checkpointing_kwargs: dict[str, object]) -> None:
        """Have its layers recomputed in the backward pass."""
        ...

    def state_dict(self, *, keep_vars: bool = ...) -> Mapping[str, Tensor]:
        """All tensors by name; with `keep_vars` the weights themselves."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor], /) -> object:
        """Load what `state_dict` returned."""
        ...

    def save_pretrained(self, path: Path, *, state_dict: Mapping[str, Tensor] | None = ...) -> object:
        """Write it as a folder in Hugging Face layout; `state_dict` in place of its own weights."""
        ...


class PretrainedCausalLM(PretrainedModel, Protocol):
    """A causal language model that can be sampled from."""

    @property
    def generation_config(self) -> GenerationConfig:
        """Its generation_config.json."""
        ...


class PretrainedClassifier(PretrainedModel, SequenceClassifier, Protocol):
    """A model that scores whole sequences."""
