"""Conversations of several turns as tokens, and which of the tokens are the assistant's own.

The tokenizer's chat template lays a conversation out. Each assistant turn is tokenized as in `chat`: apart from what stands
before it, and closed with the end token. Between two assistant turns stands the template's text, from the end token of the one
to the opening of the other. So a turn is trained behind the very prompt from which it is sampled, if the template renders
earlier turns the same however many follow. A template that does not is refused.

A template is a program. transformers runs it in a sandbox, which it cannot leave; but nothing here stops one that does not come
to an end. `model_files.check_tokenizer` tries a stranger's template with little time and memory before a stage uses it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError

from tasks.common.errors import DataError
from tasks.common.tokenizers import Tokenizer
from tasks.language.data import chat

Message = Mapping[str, str]  # `role` and `content`; the template reads other keys, such as `tool_calls` and `name`
ROLES = ("system", "developer", "user", "assistant", "tool")
SHOWN = ("system", "developer", "user")  # the roles whose texts a template writes out as they are
REASONING = ("reasoning_content", "thinking", "reasoning")  # what is said before the answer, by all of its names
MARK = "\U000f0000"  # transformers puts it before a control token in a message, where it is text


def encode_conversation(tokenizer: Tokenizer, messages: Sequence[Message]) -> tuple[list[int], list[bool]]:
    """Token ids of the whole conversation, and a mask that is True on the assistant's answers and their end tokens.

    Everything else is False, the header that opens an assistant turn too. An answer is its `content` as it stands, even
    where the template trims it; if it has further keys (`tool_calls`), it is what the template makes of them. Where the
    template puts no end token behind an answer, the tokenizer's is put there. If the last turn is the assistant's, nothing
    follows its end token. DataError with one line if the conversation or the template cannot be used.
    """
    given = _checked(messages)
    turns = [place for place, message in enumerate(given) if message["role"] == "assistant"]
    if not turns:
        raise DataError("the conversation has no assistant turn; expected one, since nothing else is trained on")
    if turns[0] == 0:
        raise DataError("message 1 is an assistant turn; expected a user turn or a system prompt before it")
    marked = _marked(tokenizer, given)
    whole = _rendered(tokenizer, marked, opens=False)
    openings = [_rendered(tokenizer, marked[:place], opens=True) for place in turns]
    _check_layout(tokenizer, marked, whole)
    _check_generation(tokenizer, marked, turns)
    end, closing = _end(tokenizer)
    closes = bool(re.search(_unmarked(closing), whole[len(openings[0]) :]))  # or else the template puts none there
    ids: list[int] = []
    mask: list[bool] = []
    behind = 0  # how much of the template's text has its tokens in `ids`
    for place, opening, later in zip(turns, openings, [*openings[1:], whole], strict=True):
        before = _between(tokenizer, opening[behind:], closing if ids else "")
        text, behind = _answer(marked, place, opening, later, closing if closes else "")
        if _plain(given[place]):
            answer = chat.encode_response(tokenizer, given[place]["content"])
        else:
            _check_calls(marked[place], text, place + 1)
            answer = [*_tokens(tokenizer, text), end]
        ids += [*before, *answer]
        mask += [False] * len(before) + [True] * len(answer)
    after = _between(tokenizer, whole[behind:], closing)
    return ids + after, mask + [False] * len(after)


def encode_prompt(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """Token ids of a conversation that ends in a user or tool turn, up to where the assistant's answer begins.

    DataError with one line if the conversation or the template cannot be used.
    """
    given = _checked(messages)
    if given[-1]["role"] == "assistant":
        raise DataError(f"message {len(given)} is the last and an assistant turn; expected a user or tool turn there")
    marked = _marked(tokenizer, given)
    opening = _rendered(tokenizer, marked, opens=True)
    _check_layout(tokenizer, marked, opening)
    return _tokens(tokenizer, opening)


def _checked(messages: Sequence[Message]) -> list[dict[str, str]]:
    """The messages, of known roles and with texts. Roles are limited because templates make control tokens of them."""
    if not len(messages):
        raise DataError("the conversation is empty; expected messages with a role and a content")
    for number, message in enumerate(messages, start=1):
        if not isinstance(message, Mapping):
            raise DataError(f"message {number} is a {type(message).__name__}; expected a role and a content")
        role, content = message.get("role"), message.get("content")
        if role not in ROLES:
            raise DataError(f"message {number}: its role is {role!r}; expected {', '.join(ROLES[:-1])} or {ROLES[-1]}")
        if not isinstance(content, str) and (content is not None or _plain(message)):
            raise DataError(f"message {number} ({role}): its content is a {type(content).__name__}; expected text")
        try:
            (content or "").encode()
        except UnicodeEncodeError:
            raise DataError(f"message {number} ({role}): its content has half a character (a surrogate)") from None
    return [{**message} for message in messages]


def _plain(message: Message) -> bool:
    """Whether a message is its content and nothing more."""
    return all(key in ("role", "content") or value is None for key, value in message.items())


def _check_calls(message: Mapping[str, Any], text: str, number: int) -> None:
    """DataError where the template leaves out a call, so that an answer without it would be learned."""
    for call in message.get("tool_calls") or []:
        name = (call.get("function") or call).get("name") if isinstance(call, Mapping) else None
        if name and str(name) not in text:
            raise DataError(
                f"message {number} (assistant): the chat template leaves out its call of {name}; expected one that knows tool_calls"
            )


@contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # of Jinja, of the template itself, of transformers
        said = " ".join(str(error).split())[:300]
        if type(error) is TemplateError:  # raised by the template, by `raise_exception`
            raise DataError(f"the chat template refuses the conversation: {said}") from None
        raise DataError(f"the chat template cannot be rendered ({type(error).__name__}: {said})") from None


def _marked(tokenizer: Tokenizer, messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """The messages with their control tokens marked as text, as `sanitize_control_tokens` of `apply_chat_template` does."""
    with _one_line():
        [marked], *_ = tokenizer._mark_chat_inputs(
            tokenizer.get_chat_template(), [messages], None, None, {}, True, False
        )
    found: list[dict[str, str]] = marked
    return found


def _rendered(tokenizer: Tokenizer, marked: Sequence[Message], opens: bool) -> str:
    """The template's text, whose tokens are `_tokens`; with `opens` up to where the assistant's answer begins."""
    with _one_line():
        template = chat.template(tokenizer)
        return tokenizer.apply_chat_template(
            marked, chat_template=template, tokenize=False, add_generation_prompt=opens
        )


def _tokens(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False, sanitize_control_tokens=True)["input_ids"]


def _between(tokenizer: Tokenizer, text: str, closing: str) -> list[int]:
    """Tokens of the text behind an end token, `closing`, which decides how the text's first characters are tokenized."""
    return _tokens(tokenizer, closing + text)[len(_tokens(tokenizer, closing)) if closing else 0 :]


def _end(tokenizer: Tokenizer) -> tuple[int, str]:
    """The token that closes an answer, and its text."""
    if tokenizer.eos_token_id is None:
        raise DataError("the tokenizer has no end token; expected an eos_token in tokenizer_config.json")
    with _one_line():
        end = chat.end_token(tokenizer)
    return end, tokenizer.decode([end], skip_special_tokens=False)


def _unmarked(closing: str) -> str:
    """A pattern for the end token's text where the template has put it, not a message."""
    return f"(?<!{MARK}){re.escape(closing)}"


def _answer(marked: Sequence[Message], place: int, opening: str, later: str, closing: str) -> tuple[str, int]:
    """The text of the assistant turn at `place`, and where in `later` stands what follows it and its end token.

    `later` is a rendering of this and further messages, which has to begin with `opening`, the answer and `closing`.
    """
    message, last = marked[place], place + 1 == len(marked)
    if last and _plain(message):
        return message["content"], len(later)
    text = (message.get("content") or "").strip()
    if not _plain(message) and not closing:
        raise DataError(
            f"message {place + 1} (assistant) is more than a content, but the chat template puts no end token behind it; "
            "expected one, without which it cannot be told where the answer ends"
        )
    body = rf"\s*{re.escape(text)}" if _plain(message) else ".*?"
    end = rf"\s*{_unmarked(closing)}" if closing else ""
    found = re.compile(f"({body}){end}", re.DOTALL).match(later, len(opening))
    wanted = [text, *(str(message[key]).strip() for key in REASONING if message.get(key))]
    if not later.startswith(opening) or not found or any(part not in found[1] for part in wanted):
        raise DataError(
            f"the chat template renders message {place + 1} (assistant) in another way when more messages follow, so that it "
            "would not be trained as it is sampled; expected a template that keeps earlier turns, or conversations cut off "
            "behind their first assistant turn"
        )
    return found[1], len(later) if last else found.end()


def _check_layout(tokenizer: Tokenizer, marked: Sequence[Message], rendered: str) -> None:
    """DataError with one line where the template drops a message, or takes its role for another."""
    squeezed = "".join(rendered.split())
    for number, message in enumerate(marked, start=1):
        role = message["role"]
        if role in SHOWN and "".join((message.get("content") or "").split()) not in squeezed:
            raise DataError(f"message {number} ({role}): the chat template leaves its content out")
        if role not in ("user", "assistant"):
            taken = _taken_for(tokenizer, chat.template(tokenizer), role)
            if taken:
                raise DataError(
                    f"message {number} ({role}): the chat template has no such role and renders it as {taken}; expected a "
                    f"conversation without it, or a template that knows it"
                )


@lru_cache(maxsize=32)
def _taken_for(tokenizer: Tokenizer, template: str | None, role: str) -> str | None:
    """The role as which the template renders `role`, which it does not know; None where it knows or refuses it."""
    before = [] if role != "tool" else [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]

    def rendered(name: str) -> str | None:
        probe = [*before, {"role": name, "content": "c"}, {"role": "user", "content": "d"}]
        try:
            return tokenizer.apply_chat_template(
                probe, chat_template=template, tokenize=False, add_generation_prompt=True
            )
        except Exception:  # refused, which the conversation's own rendering says in a line
            return None

    own = rendered(role)
    return next((name for name in ("user", "assistant") if own is not None and rendered(name) == own), None)


def _check_generation(tokenizer: Tokenizer, marked: Sequence[Message], turns: Sequence[int]) -> None:
    """DataError with one line where the template's own marks (`{% generation %}`) are not on the assistant turns."""
    template = chat.template(tokenizer)
    if not isinstance(template, str) or not re.search(r"\{%-?\s*generation\s*-?%\}", template):
        return
    from transformers.utils.chat_template_utils import render_jinja_template

    with _one_line():
        [text], [spans] = render_jinja_template(
            [marked], chat_template=template, return_assistant_tokens_mask=True, **tokenizer.special_tokens_map
        )
    said = [(marked[place].get("content") or "").strip() for place in turns]
    if len(spans) != len(said) or any(
        part not in text[start:end] for part, (start, end) in zip(said, spans, strict=True)
    ):
        raise DataError(
            f"the chat template marks {len(spans)} parts as the assistant's ({{% generation %}}), which are not the "
            f"conversation's {len(said)} assistant turns"
        )
