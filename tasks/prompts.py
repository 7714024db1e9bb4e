"""From text to tokens and back: chat prompts and responses, the same way in every stage.

What a person or a data set wrote is text: `<|end|>` in it becomes ordinary tokens, never the token that ends a response.
A response is tokenized apart from its prompt and closed with the end token, so that a prompt's tokens are always a
prefix of the whole, and the end token is inside the loss.
"""

from collections.abc import Sequence
from typing import Any

# For a tokenizer that brings no chat template, as base models' do not.
PLAIN_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}{{ message['content'] }}{{ eos_token }}"
    "{% else %}{{ bos_token or '' }}Question: {{ message['content'] }}\nAnswer:\n{% endif %}"
    "{% endfor %}"
)


def encode_prompt(tokenizer: Any, question: str) -> list[int]:
    """Token ids of the chat template's opening: the user's question, up to where the response begins."""
    conversation = [{"role": "user", "content": question}]
    return tokenizer.apply_chat_template(conversation, add_generation_prompt=True, sanitize_control_tokens=True)[
        "input_ids"
    ]


def encode_response(tokenizer: Any, response: str, ended: bool = True) -> list[int]:
    """Token ids of a response; with the end token unless it was cut off."""
    ids = tokenizer(response, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    return [*ids, tokenizer.eos_token_id] if ended else ids


def decode(tokenizer: Any, tokens: Sequence[int]) -> str:
    """A response's text, special tokens left out."""
    return tokenizer.decode(tokens, skip_special_tokens=True).strip()


def end_tokens(model: Any, tokenizer: Any) -> set[int]:
    """Every token that ends a response: the tokenizer's, and those of the model's generation config."""
    declared = model.generation_config.eos_token_id
    more = declared if isinstance(declared, list) else [declared]
    return {token for token in (*more, tokenizer.eos_token_id) if token is not None}
