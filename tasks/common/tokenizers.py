"""What the stages need of a tokenizer, as a Protocol.

Hugging Face's fit it unchanged; it is for the type checker alone.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, overload

Conversation = Sequence[Mapping[str, Any]]  # of messages with `role` and `content`


class Tokenizer(Protocol):
    """A tokenizer with an end token and a padding token, which `model_files` and the stage `pretrained` ensure."""

    eos_token: str
    eos_token_id: int
    bos_token_id: int  # of the tokenizers that the stage `tokenizer` makes; others may have none
    pad_token: str | None
    pad_token_id: int
    chat_template: str | None
    special_tokens_map: dict[str, str]

    @property
    def added_tokens_encoder(self) -> dict[str, int]:
        """The tokens that were added to the vocabulary, special ones among them."""
        ...

    @property
    def all_special_ids(self) -> list[int]:
        """The special tokens."""
        ...

    def __len__(self) -> int:
        """The size of the vocabulary."""
        ...

    def __hash__(self) -> int:
        """A tokenizer can be the key of a cache."""
        ...

    @overload
    def __call__(
        self,
        text: str,
        *,
        add_special_tokens: bool,
        split_special_tokens: bool = ...,
        sanitize_control_tokens: bool = ...,
    ) -> Mapping[str, list[int]]: ...

    @overload
    def __call__(
        self, text: list[str], *, add_special_tokens: bool, split_special_tokens: bool = ...
    ) -> Mapping[str, list[list[int]]]: ...

    @overload
    def apply_chat_template(
        self,
        conversation: Conversation,
        *,
        tokenize: Literal[False],
        tools: Sequence[Any] | None = ...,
        chat_template: str | None = ...,
        add_generation_prompt: bool = ...,
    ) -> str: ...

    @overload
    def apply_chat_template(
        self,
        conversation: Conversation,
        *,
        add_generation_prompt: bool,
        sanitize_control_tokens: bool,
        chat_template: str | None = ...,
    ) -> Mapping[str, list[int]]: ...

    def get_chat_template(self) -> str:
        """The chat template; an error where there is none."""
        ...

    def _mark_chat_inputs(
        self, template: str, conversations: list[Any], *inputs: Any
    ) -> tuple[list[list[dict[str, str]]], Any, Any, Any]:
        """The conversations with their control tokens marked as text; it has no public name yet."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Text to token ids."""
        ...

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = ...) -> str:
        """Token ids to text."""
        ...

    def get_vocab(self) -> dict[str, int]:
        """Every token with its id."""
        ...

    def save_pretrained(self, path: Path) -> object:
        """Write it as files in Hugging Face layout."""
        ...
