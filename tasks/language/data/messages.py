"""One message of a conversation: the spellings that people's files have, in one form.

A message is {"role": .., "content": text}, with `reasoning_content` (what was thought before the answer), `tool_calls`,
`tool_call_id` and `name` where there are any, and with `weight` 0 where an answer is context and not learned. The tools
that a conversation declares stand before its turns, as a message of the role TOOLS whose content is their JSON, so that
they go wherever its turns go.
"""

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

Message = dict[str, Any]

ROLES = ("system", "developer", "user", "assistant", "tool")
TOOLS = "tools"  # the role of the message that declares them; no template sees it
THOUGHT = "reasoning_content"
THOUGHTS = (THOUGHT, "thinking", "reasoning")
OTHER_NAMES = {  # of roles, in other tools' files
    **dict.fromkeys(("human", "prompter"), "user"),
    **dict.fromkeys(("gpt", "chatgpt", "bot", "model", "function_call", "tool_call"), "assistant"),
    **dict.fromkeys(("function", "observation", "tool_response", "function_response"), "tool"),
}
CALL_ROLES = ("function_call", "tool_call")  # ShareGPT's roles of a turn that is a call, as JSON
WEIGHTS = (
    "weight",
    "train",
    "trainable",
    "training",
    "loss_mask",
    "loss",
)  # whether an answer is learned, by all of its names
ASKED = "asked"  # marks a tool's last turn in our own tables, where its text is kept in the column of the prompt
NAMES = ("name", "tool_call_id")  # what the template may read of a message beside these
ARGUMENTS = ("arguments", "parameters", "input", "args")  # of a call, by all of their names
READ = {"role", "content", "from", "value", "tool_calls", "function_call", TOOLS, ASKED, *THOUGHTS, *WEIGHTS, *NAMES}


def parse_message(value: object, field: str, unread: set[str]) -> Message:
    """A message in the one form; names of its keys that are not read go to `unread`.

    ValueError names the field at fault.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"field '{field}' is {describe_value(value)}; expected a message with role and content")
    fields = remove_nulls(value)
    for name, spelled in (("role", "from"), ("content", "value")):
        if name not in fields and spelled in fields:
            fields[name] = fields.pop(spelled)
    spoken = fields.get("role")
    spoken = spoken.lower() if isinstance(spoken, str) else spoken
    role = OTHER_NAMES.get(spoken, spoken) if isinstance(spoken, str) else spoken
    if role not in (*ROLES, TOOLS):
        raise ValueError(f"field '{field}.role' is {describe_value(fields.get('role'))}; expected {', '.join(ROLES)}")
    if role == "assistant" and "content" in value:
        fields.setdefault("content", "")  # null: an empty answer
    if spoken in CALL_ROLES and isinstance(fields.get("content"), str):
        fields |= {"content": "", "tool_calls": fields["content"]}
    calls = _parse_tool_calls(fields, field, unread)
    message: Message = {
        "role": role,
        "content": _parse_content(fields, field, bool(calls)),
        **_get_optional_names(fields, field),
    }
    thought = _parse_thought(fields, field)
    if thought.strip():
        message[THOUGHT] = thought
    if calls:
        message["tool_calls"] = calls
    if role == "assistant" and not all(
        _parse_weight(fields[name], f"{field}.{name}") for name in WEIGHTS if name in fields
    ):
        message["weight"] = 0
    if role == "tool" and fields.get(ASKED) is True:
        message[ASKED] = True
    unread |= {f"messages.{name}" for name in fields.keys() - READ}
    unread |= {f"messages.{name} ({role})" for name in WEIGHTS if role != "assistant" and fields.get(name)}
    return message


def parse_tools(value: object, field: str) -> list[Message]:
    """The message that declares tools; none for no tools.

    They are a list, or JSON as text, in OpenAI's form or as bare functions.
    """
    listed = _parse_json_field(value, field) if isinstance(value, str) and value.strip() else value
    if not listed:
        return []
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise ValueError(f"field '{field}' is {describe_value(listed)}; expected a list of tools, each with a name")
    declared = []
    for number, declaration in enumerate(listed):
        tool = remove_nulls(
            _parse_json_field(declaration, f"{field}[{number}]") if isinstance(declaration, str) else declaration
        )
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise ValueError(f"field '{field}[{number}]' is {describe_value(declaration)}; expected a tool with a name")
        if "input_schema" in function and "parameters" not in function:  # as Anthropic's are declared
            function = {"parameters" if name == "input_schema" else name: part for name, part in function.items()}
        declared.append(
            {**tool, "function": function} if "function" in tool else {"type": "function", "function": function}
        )
    return [{"role": TOOLS, "content": dump_json_field(declared, field)}]


def split_tools(messages: Sequence[Mapping[str, Any]]) -> tuple[list[Any], list[Mapping[str, Any]]]:
    """The tools that a conversation declares, and its turns."""
    if messages and isinstance(messages[0], Mapping) and messages[0].get("role") == TOOLS:
        declared: list[Any] = json.loads(messages[0]["content"])
        return declared, [*messages[1:]]
    return [], [*messages]


def format_message_text(message: Mapping[str, Any]) -> str:
    """What a person reads of an answer: its thought, its content and its calls, as JSON."""
    thought = message.get(THOUGHT) or ""
    content = message.get("content") or ""
    calls = [json.dumps(call["function"], ensure_ascii=False) for call in message.get("tool_calls") or []]
    return "\n".join([*([thought] if thought else []), *([content] if content else []), *calls])


def is_empty_message(message: Mapping[str, Any]) -> bool:
    """Whether an answer has no text, thought or call: nothing that could be learned but to say nothing.

    The marks of an empty thought are no text, nor are letters that nobody sees.
    """
    written = re.sub(r"<think>\s*</think>", "", format_message_text(message))
    return all(letter.isspace() or unicodedata.category(letter) in ("Cc", "Cf") for letter in written)


def is_plain_message(message: Mapping[str, Any]) -> bool:
    """Whether a message is its content and nothing more."""
    return all(name in ("role", "content", "weight") or value is None for name, value in message.items())


def parse_transcript(written: str) -> list[Message]:
    """The turns of a text of HH-RLHF's form, `\\n\\nHuman: .. \\n\\nAssistant: ..`; none where it is no such text."""
    speakers = re.split(r"(?:^|\r?\n\r?\n)(Human|Assistant):", written.rstrip())
    if len(speakers) < 5 or speakers[0].strip() or speakers[1] != "Human":
        return []
    roles = {"Human": "user", "Assistant": "assistant"}
    return [
        {"role": roles[speaker], "content": utterance.strip()}
        for speaker, utterance in zip(speakers[1::2], speakers[2::2], strict=True)
    ]


def parse_json_turns(written: str) -> object:
    """The messages of a text that is their JSON, as tables without lists keep them; None for any other text."""
    if not re.match(r"\s*\[\s*\{", written):
        return None
    try:
        listed = json.loads(written)
    except (ValueError, RecursionError):
        return None
    spelled = ({"role", "content"}, {"from", "value"})
    is_turn = [isinstance(turn, dict) and any(names <= {*turn} for names in spelled) for turn in listed]
    return listed if all(is_turn) else None


def remove_nulls(value: Any) -> Any:
    """Without the keys whose value is null: parquet gives each object the keys of all, with nulls."""
    if isinstance(value, Mapping):
        return {name: remove_nulls(inner) for name, inner in value.items() if inner is not None}
    return [remove_nulls(inner) for inner in value] if isinstance(value, list | tuple) else value


def dump_json_field(value: object, field: str) -> str:
    """JSON as tables keep it; ValueError where a value has no form in it, such as a date of a parquet file."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"field '{field}' cannot be written as JSON: {error}") from None


def describe_value(value: object) -> str:
    """What a value is, for messages."""
    if value is None:
        return "not there"
    if isinstance(value, str):
        return f"{value[:40]!r}" if value.strip() else "empty"
    return f"{type(value).__name__} {str(value)[:40]}"


def _parse_content(fields: Mapping[str, Any], field: str, called: bool) -> str:
    content = fields.get("content", "" if called or any(name in fields for name in THOUGHTS) else None)
    if isinstance(content, list):  # the parts of a message, as multimodal models have them
        parts = [part for part in content if not _is_thought_part(part)]
        if not all(isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in parts):
            raise ValueError(f"field '{field}.content' has parts that are no text; expected text")
        content = "".join(part["text"] for part in parts)
    if not isinstance(content, str):
        raise ValueError(f"field '{field}.content' is {describe_value(content)}; expected text")
    return content


def _is_thought_part(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") in THOUGHTS and isinstance(part.get(part["type"]), str)


def _parse_thought(fields: Mapping[str, Any], field: str) -> str:
    for name in THOUGHTS:
        if name in fields and not isinstance(fields[name], str):
            raise ValueError(f"field '{field}.{name}' is {describe_value(fields[name])}; expected text")
    content = fields.get("content")
    parts = [part[part["type"]] for part in content if _is_thought_part(part)] if isinstance(content, list) else []
    written = [fields[name] for name in THOUGHTS if fields.get(name)]
    return "".join(parts) or (written[0] if written else "")


def _get_optional_names(fields: Mapping[str, Any], field: str) -> Message:
    for name in NAMES:
        if name in fields and not isinstance(fields[name], str):
            raise ValueError(f"field '{field}.{name}' is {describe_value(fields[name])}; expected text")
    return {name: fields[name] for name in NAMES if name in fields}


def _parse_tool_calls(fields: Mapping[str, Any], field: str, unread: set[str]) -> list[Message]:
    """Calls in OpenAI's form with their arguments as an object, from a list, JSON as text, or one call."""
    name = next((name for name in ("tool_calls", "function_call") if fields.get(name)), None)
    if name is None:
        return []
    calls = _parse_json_field(fields[name], f"{field}.{name}") if isinstance(fields[name], str) else fields[name]
    calls = calls if isinstance(calls, list | tuple) else [calls]
    return [_parse_tool_call(call, f"{field}.{name}[{number}]", unread) for number, call in enumerate(calls)]


def _parse_tool_call(call: object, field: str, unread: set[str]) -> Message:
    call = _parse_json_field(call, field) if isinstance(call, str) else call
    outer = call if isinstance(call, Mapping) else {}
    function = outer.get("function", outer)
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ValueError(f"field '{field}' is {describe_value(call)}; expected a call with name and arguments")
    named = next((name for name in ARGUMENTS if name in function), None)
    arguments: Any = {} if named is None else function[named]
    read = {"type", "id", "index", "function", "name", named}
    unread |= {f"messages.tool_calls.{name}" for name in {**outer, **function}.keys() - read}
    if isinstance(arguments, str):
        arguments = _parse_json_field(arguments, f"{field}.arguments") if arguments.strip() else {}
    identity = {"id": outer["id"]} if isinstance(outer.get("id"), str) else {}
    return {"type": "function", **identity, "function": {"name": function["name"], "arguments": arguments}}


def _parse_weight(value: object, field: str) -> bool:
    if not isinstance(value, bool | int | float) or value not in (0, 1):
        raise ValueError(f"field '{field}' is {describe_value(value)}; expected 0 or 1, true or false")
    return bool(value)


def _parse_json_field(written: str, field: str) -> Any:
    try:
        return json.loads(written)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"field '{field}' is text, and no JSON: {error}") from None
