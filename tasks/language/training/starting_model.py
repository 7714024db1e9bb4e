"""The model that training starts from: a new one of given sizes, or one that exists already."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from transformers import AutoModelForCausalLM, LlamaConfig

from tasks.algorithms.language.causal_lm import PretrainedCausalLM
from tasks.common import model_files
from tasks.common.config_faults import describe_missing_model
from tasks.common.errors import ConfigError
from tasks.common.tokenizers import Tokenizer
from tasks.language.data import chat
from tasks.language.training import architectures


class Sizes(Protocol):
    """What a section says of a new model."""

    @property
    def width(self) -> int:
        """The width of the hidden states."""
        ...

    @property
    def layers(self) -> int:
        """How many transformer blocks."""
        ...

    @property
    def heads(self) -> int:
        """How many attention heads, which split the width."""
        ...

    @property
    def context(self) -> int:
        """The longest sequence."""
        ...

    @property
    def initializer_range(self) -> float:
        """The standard deviation of the weights."""
        ...


def build_llama_config(sizes: Sizes, tokenizer: Tokenizer) -> LlamaConfig:
    """A Llama with tied embeddings and a feed-forward layer 8/3 as wide as the states, as in arXiv:2302.13971."""
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=sizes.width,
        intermediate_size=8 * sizes.width // 3,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.heads,
        max_position_embeddings=sizes.context,
        initializer_range=sizes.initializer_range,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def load_existing_model(name: str | Path, at: Mapping[str, Any]) -> tuple[PretrainedCausalLM, Tokenizer]:
    """A model that someone trained already, given a chat template and a padding token where it has none.

    `name` is a folder or a hub's id, and `at` are further arguments of from_pretrained.
    """
    architectures.check_architecture_config({"pretrained_model_name_or_path": name, **at})
    model: PretrainedCausalLM = model_files.load_checked_model(AutoModelForCausalLM, name, **at).eval()
    tokenizer = model_files.load_tokenizer(name, **at)
    architectures.check_shared_prompt_sampling(str(name), model)
    model_files.check_tokenizer(name, tokenizer, model.get_input_embeddings().num_embeddings)
    if tokenizer.chat_template is None:
        tokenizer.chat_template = chat.PLAIN_TEMPLATE
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    ends = sorted(chat.end_tokens(model, tokenizer))
    if len(ends) > 1:  # so that sampling from the trained model stops where it was taught to stop
        model.generation_config.eos_token_id = ends
    return model, tokenizer


def load_model_from_folder(folder: Path, said_by: str) -> tuple[PretrainedCausalLM, Tokenizer]:
    """The model in a folder; ConfigError with one line, which names what `said_by` says so, where there is none."""
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{said_by}: {folder} {describe_missing_model(folder)}")
    return load_existing_model(folder, {"local_files_only": True})
