"""Conversations of several turns as tokens, and which of the tokens are the assistant's own.

The tokenizer's chat template lays a conversation out. Each assistant turn is tokenized as in `chat`: apart from what
stands before it, and closed with the end token. Between two assistant turns stands the template's text, from the end
token of the one to the opening of the other. So a turn is trained behind the very prompt from which it is sampled, if
the template renders earlier turns the same however many follow. A template that does not is refused.

A template is a program. transformers runs it in a sandbox, which it cannot leave; but nothing here stops one that does
not come to an end. `model_files.check_tokenizer` tries a stranger's template with little time and memory before a stage
uses it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

from jinja2 import TemplateError

from tasks.common.errors import DataError
from tasks.common.tokenizers import Tokenizer
from tasks.language.data import chat, templates
from tasks.language.data.messages import ROLES, THOUGHTS, is_plain_message, split_tools

Message = Mapping[str, Any]  # in the form of `messages`
SHOWN = ("system", "developer", "user")  # the roles whose texts a template writes out as they are
MARK, MARK_END = (
    "\U000f0000",
    "\U000f0001",
)  # transformers puts them around a control token in a message, where it is text


class Marked(NamedTuple):
    """A conversation as the template gets it: spelled as it reads it, with control tokens in it marked as text."""

    turns: list[dict[str, Any]]
    tools: list[Any] | None


class AssistantTurn(NamedTuple):
    """An assistant turn as the template writes it, and where in the rendering its end token has ended."""

    text: str
    end: int | None  # the end token; None where there is none to learn
    behind: int


def encode_conversation(tokenizer: Tokenizer, conversation: Sequence[Message]) -> tuple[list[int], list[bool]]:
    """Token ids of the whole conversation, and a mask that is True on the assistant's answers and their end tokens.

    Everything else is False, the header that opens an assistant turn too, and answers of weight 0. An answer is all
    that the template writes of it, from where a prompt ends to the end token. Where the template puts no end token
    behind an answer, the tokenizer's is put there; where it ends earlier answers in another way than the last one, only
    the last one's end is learned. If the last turn is the assistant's, nothing follows its end token. DataError with
    one line if the conversation or the template cannot be used.
    """
    tools, messages = split_tools(conversation)
    checked = _copy_checked_messages(messages)
    turns = [index for index, message in enumerate(checked) if message["role"] == "assistant"]
    learned = [index for index in turns if checked[index].get("weight") != 0]
    if not turns:
        raise DataError("the conversation has no assistant turn; expected one, since nothing else is trained on")
    if turns[0] == 0:
        raise DataError("message 1 is an assistant turn; expected a user turn or a system prompt before it")
    marked = _mark_control_tokens(tokenizer, checked, tools)
    whole = _render_turns(tokenizer, marked, len(checked), opens=False)
    openings = [_render_turns(tokenizer, marked, index, opens=True) for index in learned]
    _check_layout(tokenizer, marked, whole)
    _check_generation_marks(tokenizer, marked, turns)
    closing = _get_end_token_text(tokenizer)
    ids: list[int] = []
    mask: list[bool] = []
    behind = 0  # how much of the template's text has its tokens in `ids`
    before = ""  # the text of the end token before it
    for index, opening, later in zip(learned, openings, [*openings[1:], whole], strict=True):
        header = _tokenize_after_end(tokenizer, opening[behind:], before)
        answered = _extract_assistant_turn(tokenizer, marked, index, opening, later, closing)
        tokens = _tokenize_answer(tokenizer, checked[index], marked.turns[index], answered.text)
        ends = [] if answered.end is None else [answered.end]
        ids += [*header, *tokens, *ends]
        mask += [False] * len(header) + [True] * (len(tokens) + len(ends))
        behind = answered.behind
        before = closing if ends else ""
    after = _tokenize_after_end(tokenizer, whole[behind:], before)
    return ids + after, mask + [False] * len(after)


def encode_answer(tokenizer: Tokenizer, prompt: Sequence[Message], answer: Message) -> list[int]:
    """Token ids of an answer to a prompt, with its end token: all that the template writes of it.

    DataError as above.
    """
    context = [{**turn, "weight": 0} if turn["role"] == "assistant" else turn for turn in prompt]
    ids, mask = encode_conversation(tokenizer, [*context, {**answer, "weight": 1}])
    return [token for token, learned in zip(ids, mask, strict=True) if learned]


def encode_conversation_prompt(tokenizer: Tokenizer, conversation: Sequence[Message]) -> list[int]:
    """Token ids of a conversation that ends in a user or tool turn, up to where the assistant's answer begins.

    DataError with one line if the conversation or the template cannot be used.
    """
    tools, messages = split_tools(conversation)
    checked = _copy_checked_messages(messages)
    if checked[-1]["role"] == "assistant":
        raise DataError(f"message {len(checked)} is the last and an assistant turn; expected a user or tool turn there")
    marked = _mark_control_tokens(tokenizer, checked, tools)
    opening = _render_turns(tokenizer, marked, len(checked), opens=True)
    _check_layout(tokenizer, marked, opening)
    return _tokenize_rendered(tokenizer, opening)


def _copy_checked_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages, of known roles and with texts. Roles are limited because templates make control tokens of them."""
    if not len(messages):
        raise DataError("the conversation is empty; expected messages with a role and a content")
    for number, message in enumerate(messages, start=1):
        if not isinstance(message, Mapping):
            raise DataError(f"message {number} is a {type(message).__name__}; expected a role and a content")
        role = message.get("role")
        content = message.get("content")
        if role not in ROLES:
            raise DataError(f"message {number}: its role is {role!r}; expected {', '.join(ROLES[:-1])} or {ROLES[-1]}")
        if not isinstance(content, str) and (content is not None or is_plain_message(message)):
            raise DataError(f"message {number} ({role}): its content is a {type(content).__name__}; expected text")
        try:
            (content or "").encode()
        except UnicodeEncodeError:
            raise DataError(f"message {number} ({role}): its content has half a character (a surrogate)") from None
    return [{**message} for message in messages]


@contextmanager
def _convert_template_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # of Jinja, of the template itself, of transformers
        message = " ".join(str(error).split())[:300]
        if type(error) is TemplateError:  # raised by the template, by `raise_exception`
            raise DataError(f"the chat template refuses the conversation: {message}") from None
        raise DataError(f"the chat template cannot be rendered ({type(error).__name__}: {message})") from None


def _mark_control_tokens(tokenizer: Tokenizer, turns: Sequence[Message], tools: list[Any]) -> Marked:
    """The conversation with its control tokens marked as text, as `sanitize_control_tokens` of `apply_chat_template`
    does.
    """
    template = chat.build_fixed_date_template(tokenizer)
    tools = tools if tools and templates.can_template_render_tools(tokenizer, template) else []
    spelled = [templates.adapt_message_to_template(tokenizer, template, turn) for turn in turns]
    with _convert_template_errors():
        [marked], declared, *_ = tokenizer._mark_chat_inputs(
            tokenizer.get_chat_template(), [spelled], tools or None, None, {}, True, False
        )
    if chat.THINK[1] in (template or ""):  # which the template itself looks for in an answer
        for turn in marked:
            if turn["role"] == "assistant" and turn.get("content"):
                turn["content"] = re.sub(rf"{MARK}(</?think>){MARK_END}", r"\1", turn["content"])
    return Marked(marked, declared)


def _render_turns(tokenizer: Tokenizer, marked: Marked, count: int, opens: bool) -> str:
    """The template's text of the first turns, whose tokens are `_tokens`; with `opens` up to where the assistant's
    answer begins.
    """
    with _convert_template_errors():
        return tokenizer.apply_chat_template(
            marked.turns[:count],
            tools=marked.tools,
            chat_template=chat.build_fixed_date_template(tokenizer),
            tokenize=False,
            add_generation_prompt=opens,
        )


def _tokenize_rendered(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False, sanitize_control_tokens=True)["input_ids"]


def _tokenize_after_end(tokenizer: Tokenizer, text: str, closing: str) -> list[int]:
    """Tokens of the text behind an end token, `closing`, which decides how the text's first characters are
    tokenized.
    """
    return _tokenize_rendered(tokenizer, closing + text)[
        len(_tokenize_rendered(tokenizer, closing)) if closing else 0 :
    ]


def _get_end_token_text(tokenizer: Tokenizer) -> str:
    """The text of the token that closes an answer."""
    if tokenizer.eos_token_id is None:
        raise DataError("the tokenizer has no end token; expected an eos_token in tokenizer_config.json")
    with _convert_template_errors():
        end = chat.end_token(tokenizer)
    return tokenizer.decode([end], skip_special_tokens=False)


def _build_end_pattern(closing: str) -> str:
    """A pattern for the end token's text where the template has put it, not a message."""
    return f"(?<!{MARK}){re.escape(closing)}"


def _extract_assistant_turn(
    tokenizer: Tokenizer, marked: Marked, index: int, opening: str, later: str, closing: str
) -> AssistantTurn:
    """The assistant turn at `index`; `later` is a rendering of this and further messages."""
    message = marked.turns[index]
    last = index + 1 == len(marked.turns)
    alone = later if last else _render_turns(tokenizer, marked, index + 1, opens=False)
    if not alone.startswith(opening):
        raise DataError(
            f"message {index + 1} (assistant): the chat template opens an answer in another way than it renders "
            "one; expected a "
            "template whose prompts are the beginning of what is trained"
        )
    text, ending = _split_answer_and_end(message, index, alone[len(opening) :], closing)
    _check_answer(message, text, index + 1)
    control = _index_control_tokens(tokenizer)
    if last:
        return AssistantTurn(text, control[ending or closing], len(later))
    rest = later[len(opening) :] if later.startswith(opening) else ""
    text = _trim_inner_answer(message, text, rest)
    inner = templates.find_inner_end_token(tokenizer, chat.build_fixed_date_template(tokenizer))
    ends = [_build_end_pattern(end) for end in (ending, inner) if end]
    match = re.compile(rf"(\s*)({'|'.join(ends)})").match(rest, len(text)) if rest.startswith(text) else None
    if not match:
        raise DataError(
            f"the chat template renders message {index + 1} (assistant) in another way when more messages follow, "
            "so that it "
            "would not be trained as it is sampled; expected a template that keeps earlier turns, or "
            "conversations cut off "
            "behind their first assistant turn"
        )
    if not ends:
        return AssistantTurn(text, control[closing], len(opening) + len(text))
    text = rest[: match.end(1)]
    if match[2] == ending:
        return AssistantTurn(text, control[ending], len(opening) + match.end())
    return AssistantTurn(text, None, len(opening) + len(text))


def _trim_inner_answer(message: Message, text: str, rest: str) -> str:
    """What the template writes of an answer behind which more follows: without what stands around the last one, as an
    empty thought.
    """
    content = (message.get("content") or "").strip()
    spaces = len(rest) - len(rest.lstrip())
    if is_plain_message(message) and not rest.startswith(text) and rest.startswith(content, spaces):
        return rest[: spaces + len(content)]
    return text


def _split_answer_and_end(message: Message, index: int, written: str, closing: str) -> tuple[str, str]:
    """What the template writes of an answer that nothing follows, and the end token behind it: the empty text where
    there is none.
    """
    end = re.compile(rf"(\s*){_build_end_pattern(closing)}")
    content = message.get("content") or ""
    contents = [content, content.strip()] if content.strip() else []
    if not is_plain_message(message):
        names = map(_get_call_name, message.get("tool_calls") or [])
        parts = [*contents[-1:], *(str(message.get(name) or "") for name in THOUGHTS), *names]
        match = end.search(written, max((written.rfind(part) for part in parts if part), default=0))
        if not match:
            raise DataError(
                f"message {index + 1} (assistant) is more than a content, but the chat template puts no end token "
                "behind it; "
                "expected one, without which it cannot be told where the answer ends"
            )
        return written[: match.end(1)], closing
    for content in contents:  # as it is, or trimmed
        start = written.find(content)
        while start >= 0:
            if match := end.match(written, start + len(content)):
                return written[: match.end(1)], closing
            start = written.find(content, start + 1)
    for content in contents:  # with more between it and the end
        if content in written and (match := end.search(written, written.rfind(content) + len(content))):
            return written[: match.end(1)], closing
    if not contents and (match := end.search(written)):
        return written[: match.end(1)], closing
    shown = next((content for content in contents if content in written), "")
    return written[: written.rfind(shown) + len(shown)] if shown else "", ""


def _check_answer(message: Message, text: str, number: int) -> None:
    """DataError where the template leaves out a part of an answer."""
    thoughts = [str(message[name]) for name in THOUGHTS if message.get(name)]
    for what, part in (("content", message.get("content") or ""), *(("thought", thought) for thought in thoughts)):
        if part.strip() not in text:
            raise DataError(
                f"message {number} (assistant): the chat template leaves out its {what}, or changes it; expected a "
                "template that "
                f"writes it as it is"
            )
    _check_calls(message, text, number)


def _check_calls(message: Message, text: str, number: int) -> None:
    """DataError where the name of a function that a message calls is not in the text."""
    for name in map(_get_call_name, message.get("tool_calls") or []):
        if name not in text:
            raise DataError(
                f"message {number} (assistant): the chat template leaves out its call of {name}; expected one that "
                "knows tool_calls"
            )


def _get_call_name(call: object) -> str:
    """The name of the function that is called."""
    function = call.get("function", call) if isinstance(call, Mapping) else {}
    return str(function.get("name") or "")


def _tokenize_answer(tokenizer: Tokenizer, message: Message, marked: Message, text: str) -> list[int]:
    """Tokens of what the template writes of an answer: those of a response where it is one."""
    around = chat.get_answer_surroundings(tokenizer)
    if is_plain_message(message) and text == around.opened + around.text(marked["content"]):
        return chat.encode_response(tokenizer, message["content"])[:-1]
    return _tokenize_rendered(tokenizer, text)


@lru_cache(maxsize=8)
def _index_control_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """The control tokens by their texts, the longest first."""
    tokens = {tokenizer.decode([token], skip_special_tokens=False): token for token in chat.control_tokens(tokenizer)}
    return dict(sorted(tokens.items(), key=lambda item: -len(item[0])))


def _check_layout(tokenizer: Tokenizer, marked: Marked, rendered: str) -> None:
    """DataError with one line where the template drops a message, or takes its role for another."""
    squeezed = "".join(rendered.split())
    for number, message in enumerate(marked.turns, start=1):
        role = message["role"]
        if role in SHOWN and "".join((message.get("content") or "").split()) not in squeezed:
            raise DataError(f"message {number} ({role}): the chat template leaves its content out")
        _check_calls(message, rendered, number)
        if role not in ("user", "assistant"):
            rendered_role = templates.find_substitute_role(tokenizer, chat.build_fixed_date_template(tokenizer), role)
            if rendered_role:
                raise DataError(
                    f"message {number} ({role}): the chat template has no such role and renders it as "
                    f"{rendered_role}; expected a "
                    f"conversation without it, or a template that knows it"
                )


def _check_generation_marks(tokenizer: Tokenizer, marked: Marked, turns: Sequence[int]) -> None:
    """DataError with one line where the template's own marks (`{% generation %}`) are not on the assistant turns."""
    template = chat.build_fixed_date_template(tokenizer)
    if not isinstance(template, str) or not re.search(r"\{%-?\s*generation\s*-?%\}", template):
        return
    from transformers.utils.chat_template_utils import render_jinja_template

    with _convert_template_errors():
        [text], [spans] = render_jinja_template(
            [marked.turns],
            tools=marked.tools,
            chat_template=template,
            return_assistant_tokens_mask=True,
            **tokenizer.special_tokens_map,
        )
    contents = [(marked.turns[index].get("content") or "").strip() for index in turns]
    if len(spans) != len(contents) or any(
        part not in text[start:end] for part, (start, end) in zip(contents, spans, strict=True)
    ):
        raise DataError(
            f"the chat template marks {len(spans)} parts as the assistant's ({{% generation %}}), which are not the "
            f"conversation's {len(contents)} assistant turns"
        )
