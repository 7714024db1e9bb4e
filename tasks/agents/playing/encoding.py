"""A conversation of several turns as tokens, piece by piece: the opening, then what stands between an action and the
next.

The chat template decides. What an environment says is text: a control token's name in it becomes ordinary tokens.
"""

from collections.abc import Sequence
from functools import lru_cache

from tasks.agents.environments.protocol import Message
from tasks.common.errors import DataError
from tasks.common.tokenizers import Tokenizer
from tasks.language.data import chat


def encode_opening(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """The first messages, up to where the policy's action begins."""
    return _encode_messages(tokenizer, messages, more=True)


def encode_observation(tokenizer: Tokenizer, observation: str, ended: bool) -> list[int]:
    """What follows an action up to where the next one begins; with the end token where the action did not have one
    (`ended`).

    What was said stays as it was said, also with templates that take thoughts out of earlier answers.
    """
    whole = _encode_messages(tokenizer, [*_build_probe_messages(), {"role": "user", "content": observation}], more=True)
    return [*([] if ended else [chat.end_token(tokenizer)]), *whole[_compute_answer_end(tokenizer) :]]


def encode_action(tokenizer: Tokenizer, text: str) -> list[int]:
    """An action that was written by someone else, with its end token."""
    return chat.encode_response(tokenizer, text)


def decode_action(tokenizer: Tokenizer, tokens: Sequence[int], ended: bool) -> str:
    """What the environment hears of an action."""
    return chat.decode_response(tokenizer, tokens, ended)


@lru_cache(maxsize=8)
def _compute_answer_end(tokenizer: Tokenizer) -> int:
    """Where in a conversation of two questions the tokens behind the first answer's end token begin."""
    end = chat.end_token(tokenizer)
    count = _encode_messages(tokenizer, _build_probe_messages(), more=False).count(end)
    second = _encode_messages(tokenizer, [*_build_probe_messages(), {"role": "user", "content": "B"}], more=True)
    positions = [at for at, token in enumerate(second) if token == end]
    if not count or len(positions) < count:
        raise DataError(
            "the chat template puts no end token behind an answer; expected one that does, so that "
            "turns can be told apart"
        )
    return positions[count - 1] + 1


def _build_probe_messages() -> list[Message]:
    return [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]


def _encode_messages(tokenizer: Tokenizer, messages: Sequence[Message], more: bool) -> list[int]:
    return tokenizer.apply_chat_template(
        [{"role": message["role"], "content": message["content"]} for message in messages],
        chat_template=chat.build_fixed_date_template(tokenizer),
        add_generation_prompt=more,
        sanitize_control_tokens=True,
    )["input_ids"]
