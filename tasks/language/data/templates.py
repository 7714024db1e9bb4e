"""What a chat template knows, tried on small conversations: tools, roles, how calls and thoughts are spelled, how
answers end.

A template is a program in which none of this can be read; transformers renders it in a sandbox.
"""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from tasks.common.tokenizers import Tokenizer
from tasks.language.data import chat
from tasks.language.data.messages import THOUGHT, THOUGHTS, TOOLS

PROBED = "probed_name"  # of a tool


def format_unread_tools_warning(tokenizer: Tokenizer, conversations: Iterable[str]) -> str:
    """A line that says of how many of these conversations (JSON, or empty) the template does not read the tools; empty
    for none.
    """
    start = json.dumps([{"role": TOOLS}])[:-2]
    declared = sum(text.startswith(start) for text in conversations)
    if not declared or can_template_render_tools(tokenizer, chat.build_fixed_date_template(tokenizer)):
        return ""
    return f"not read: the tools of {declared:,} conversations, since the chat template does not know tools"


def adapt_message_to_template(tokenizer: Tokenizer, template: str | None, turn: Mapping[str, Any]) -> dict[str, Any]:
    """A message with its thought and its calls as the template reads them."""
    message = {name: value for name, value in turn.items() if name != "weight"}
    thought = next((message.pop(name) for name in THOUGHTS if message.get(name)), None)
    if thought is not None:
        message[next((name for name in THOUGHTS if name in (template or "")), THOUGHT)] = thought
    if message.get("tool_calls") and _needs_text_arguments(tokenizer, template):
        message["tool_calls"] = [_dump_call_arguments(call) for call in message["tool_calls"]]
    return message


def _dump_call_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function", call)
    written = {**function, "arguments": json.dumps(function.get("arguments", {}), ensure_ascii=False)}
    return {**call, "function": written} if "function" in call else written


@lru_cache(maxsize=8)
def _needs_text_arguments(tokenizer: Tokenizer, template: str | None) -> bool:
    """Whether the template writes a call's arguments as they are, so that an object would stand there as Python shows
    it.
    """
    call = {"type": "function", "id": "probe", "function": {"name": "probed", "arguments": {"probe": "value"}}}
    turns: list[Mapping[str, Any]] = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    try:
        text = tokenizer.apply_chat_template(turns, chat_template=template, tokenize=False)
    except TypeError:  # text and an object cannot be joined
        return True
    except Exception:  # refused, which the conversation's own rendering says in a line
        return False
    return "{'probe': 'value'}" in text


@lru_cache(maxsize=8)
def can_template_render_tools(tokenizer: Tokenizer, template: str | None) -> bool:
    """Whether the template writes out the tools that a conversation declares; True where it refuses to be tried."""
    parameters = {"type": "object", "properties": {}}
    tool = {"type": "function", "function": {"name": PROBED, "description": "A probe.", "parameters": parameters}}
    try:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": "a"}], tools=[tool], chat_template=template, tokenize=False
        )
    except Exception:  # refused, which the conversation's own rendering says in a line
        return True
    return PROBED in text


@lru_cache(maxsize=8)
def find_inner_end_token(tokenizer: Tokenizer, template: str | None) -> str:
    """The control token that ends an answer behind which more follows; empty where there is none."""
    chats = [{"role": "user", "content": "A question."}, {"role": "assistant", "content": "An answer."}]
    text = tokenizer.apply_chat_template(
        [*chats, {"role": "user", "content": "Another."}], chat_template=template, tokenize=False
    )
    header = text.partition("A question.")[0]
    between = text.partition("An answer.")[2].partition("Another.")[0]
    tokens = tokenizer.encode(between, add_special_tokens=False)
    ends = [token for token in tokens if token in chat.control_tokens(tokenizer)]
    if not ends or header.strip().endswith(between.strip()):
        return ""
    return tokenizer.decode(ends[:1], skip_special_tokens=False)


@lru_cache(maxsize=32)
def find_substitute_role(tokenizer: Tokenizer, template: str | None, role: str) -> str | None:
    """The role that the template takes an unknown `role` for; None where it knows or refuses `role`."""
    before = [] if role != "tool" else [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]

    def rendered(name: str) -> str | None:
        probe = [*before, {"role": name, "content": "c"}, {"role": "user", "content": "d"}]
        try:
            return tokenizer.apply_chat_template(
                probe, chat_template=template, tokenize=False, add_generation_prompt=True
            )
        except Exception:  # refused, which the conversation's own rendering says in a line
            return None

    rendering = rendered(role)
    return next((name for name in ("user", "assistant") if rendering is not None and rendered(name) == rendering), None)
