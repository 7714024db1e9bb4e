"""The forms in which people keep conversations and preference pairs, told apart by their columns.

Each reader takes one row as a mapping and raises ValueError naming the field at fault; rows.py adds the file and the line.
A conversation is a list of messages {"role": .., "content": ..}; other keys of a message, such as tool_calls, stay in it.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Message = dict[str, Any]
Conversation = list[Message]

ROLES = ("system", "developer", "user", "assistant", "tool")
SPOKEN = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "function": "tool", "observation": "tool"}
TURNS = ("messages", "conversations", "conversation")
RESPONSES = ("completion", "response", "output")
DEMONSTRATIONS = (
    "messages | conversations (ShareGPT) | prompt and completion | instruction, input and output | "
    "question and answer | problem and solution | prompt, chosen and rejected | text"
)
PAIRS = "prompt, chosen and rejected, as text or messages; or chosen and rejected alone, as messages"
SCORES = (("score_chosen", "score_rejected"), ("chosen_score", "rejected_score"), ("chosen-rating", "rejected-rating"))
LEVELS = {
    "negligibly better": "negligibly",
    "slightly better": "slightly",
    "better": "",
    "significantly better": "significantly",
}
LEVELS |= {"much better": "significantly", "strong": "", "weak": "slightly"}


class Demonstration(NamedTuple):
    """What SFT imitates: a conversation, of which the assistant's turns are learned, or plain text, of which all is."""

    messages: Conversation
    text: str


class Pair(NamedTuple):
    """Two responses to one prompt, of which the first is preferred."""

    prompt: Conversation  # ends with the turn that is answered
    chosen: str
    rejected: str
    scores: tuple[float, float] | None  # of chosen and rejected, where somebody gave them
    level: str  # by how much, a word of tables/preferences.py's LEVELS; that of "better" where nobody said it


def demonstration(row: Mapping[str, Any]) -> Demonstration:
    """A row of any form of DEMONSTRATIONS."""
    if (turns := next((name for name in TURNS if row.get(name) not in (None, "")), None)) is not None:
        messages = conversation(row[turns], turns)
        if turns != "messages" and isinstance(row.get("system"), str) and row["system"].strip():
            messages = [{"role": "system", "content": row["system"]}, *messages]
    elif "chosen" in row:
        found = pair(row)
        messages = [*found.prompt, _answer(found.chosen)]
    elif "prompt" in row and (name := _first(row, RESPONSES)) is not None:
        asked, answered = as_turns(row["prompt"], "prompt", "user"), as_turns(row[name], name, "assistant")
        messages = [*asked, *answered]
    elif "instruction" in row and (name := _first(row, RESPONSES)) is not None:
        messages = [instruction(row), _answer(text(row, name))]
    elif "question" in row and (name := _first(row, ("solution", "answer"))) is not None:
        messages = [question(text(row, "question")), _answer(text(row, name))]
    elif "problem" in row and "solution" in row:
        messages = [question(text(row, "problem")), _answer(text(row, "solution"))]
    elif row.get("text") is not None:
        return Demonstration([], text(row, "text"))
    else:
        raise ValueError(f"expected columns {DEMONSTRATIONS}; got {columns(row)}")
    if not any(message["role"] == "assistant" for message in messages):
        raise ValueError("expected at least one turn of the assistant; there is none to learn from")
    return Demonstration(messages, "")


def pair(row: Mapping[str, Any]) -> Pair:
    """A row of PAIRS. Where `chosen` and `rejected` are whole conversations, what they share is the prompt."""
    if "chosen" not in row or "rejected" not in row:
        raise ValueError(f"expected columns {PAIRS}; got {columns(row)}")
    prompt = as_turns(row["prompt"], "prompt", "user") if row.get("prompt") is not None else []
    if prompt and isinstance(history := row.get("history"), str) and history:  # as our own tables keep it
        prompt = [*conversation(history, "history"), *prompt]
    sides = {name: as_turns(row[name], name, "assistant") for name in ("chosen", "rejected")}
    for name, turns in sides.items():
        if turns[-1]["role"] != "assistant":
            raise ValueError(f"field '{name}' ends with a turn of {turns[-1]['role']}; expected the assistant's")
    shared = sides["chosen"][:-1]
    if shared != sides["rejected"][:-1]:
        raise ValueError("fields 'chosen' and 'rejected' differ before their last turn; expected one prompt")
    if any(message["role"] != "assistant" for message in shared):  # whole conversations: they hold the prompt
        prompt = shared
    elif shared:
        raise ValueError("fields 'chosen' and 'rejected' have several turns; expected one answer to the prompt")
    if not prompt:
        raise ValueError(f"expected columns {PAIRS}; there is no prompt")
    if prompt[-1]["role"] == "assistant":
        raise ValueError("field 'prompt' ends with a turn of the assistant; expected the turn that is answered")
    chosen, rejected = (str(sides[name][-1]["content"]) for name in ("chosen", "rejected"))
    return Pair(prompt, chosen, rejected, _scores(row), _level(row))


def conversation(value: object, field: str) -> Conversation:
    """Messages with roles and contents, or ShareGPT's turns `{"from": "human", "value": ..}`; the last with a content."""
    if isinstance(value, str) and value.lstrip().startswith("["):  # as JSON, which some tables keep
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"field '{field}' is text, and no JSON: {error}") from None
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not value:
        raise ValueError(f"field '{field}' is {_kind(value)}; expected a list of messages with role and content")
    return [_message(one, f"{field}[{number}]") for number, one in enumerate(value)]


def as_turns(value: object, field: str, role: str) -> Conversation:
    """Text as one turn of `role`, or messages."""
    if isinstance(value, str):
        if not value.strip() and role == "user":
            raise ValueError(f"field '{field}' is empty; expected text or messages")
        return [{"role": role, "content": value}]
    if not isinstance(value, list | tuple):
        raise ValueError(f"field '{field}' is {_kind(value)}; expected text or messages")
    return conversation(value, field)


def instruction(row: Mapping[str, Any]) -> Message:
    """Alpaca's `instruction` with its `input`, where that is not empty."""
    more = row.get("input")
    if more is not None and not isinstance(more, str):
        raise ValueError(f"field 'input' is {_kind(more)}; expected text")
    return question(text(row, "instruction") + (f"\n\n{more.strip()}" if more and more.strip() else ""))


def text(row: Mapping[str, Any], field: str) -> str:
    """A field that has to be a text with something in it, without the spaces around it."""
    value = row.get(field)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"field '{field}' is {_kind(value)}; expected text")
    return value.strip()


def split_prompt(prompt: Conversation) -> tuple[str, str]:
    """A prompt as tables keep it: the text of its last turn, and the turns before it as JSON, empty where there are none.

    ValueError where the last turn is not the user's: such a prompt cannot be told from a user's question.
    """
    last = prompt[-1]["role"] if prompt else "nobody"
    if last != "user":
        raise ValueError(f"the prompt ends with a turn of {last}; expected the user's")
    *before, asked = prompt
    if not asked["content"].strip():
        raise ValueError("the prompt's last turn is empty; expected text")
    return str(asked["content"]), as_json(before) if before else ""


def joined_prompt(prompt: str, history: str = "") -> Conversation:
    """The inverse of `split_prompt`."""
    return [*from_json(history), question(prompt)]


def demonstrated(problem: Mapping[str, Any], response: str) -> dict[str, Any]:
    """A row of Demonstrations: a row of Problems, answered by `response`."""
    messages = [*joined_prompt(problem["question"], problem.get("history", "")), _answer(response)]
    return {"demonstration_id": problem["problem_id"], "messages": as_json(messages), "text": ""}


def from_json(text: str) -> Conversation:
    """The inverse of `as_json`; no messages for an empty text."""
    found: Conversation = json.loads(text) if text else []
    return found


def as_json(messages: Conversation) -> str:
    """Messages as the text that tables keep."""
    return json.dumps(messages, ensure_ascii=False)


def columns(row: Mapping[str, Any]) -> str:
    """The names of a row's columns, for messages."""
    named = (f"{name} (null)" if value is None else str(name) for name, value in row.items())
    return " ".join(", ".join(named).split())[:200] or "none"


def _message(value: object, field: str) -> Message:
    if not isinstance(value, Mapping):
        raise ValueError(f"field '{field}' is {_kind(value)}; expected a message with role and content")
    given = {name: inner for name, inner in value.items() if inner is not None}  # parquet fills in nulls
    if "from" in given and "value" in given:
        given = {"role": given.pop("from"), "content": given.pop("value"), **given}
    role = given.get("role")
    role = SPOKEN.get(role, role) if isinstance(role, str) else role
    if role not in ROLES:
        raise ValueError(f"field '{field}.role' is {_kind(role)}; expected {', '.join(ROLES)}")
    content = given.get("content", "" if given.get("tool_calls") else None)
    if isinstance(content, list):  # the parts of a message, as multimodal models have them
        if not all(isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in content):
            raise ValueError(f"field '{field}.content' has parts that are no text; expected text")
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str):
        raise ValueError(f"field '{field}.content' is {_kind(content)}; expected text")
    return {**given, "role": role, "content": content}


def _scores(row: Mapping[str, Any]) -> tuple[float, float] | None:
    places = [row, row["metadata"]] if isinstance(row.get("metadata"), Mapping) else [row]
    for place in places:
        for names in SCORES:
            if all(place.get(name) is not None for name in names):
                chosen, rejected = (_number(place[name], name) for name in names)
                return chosen, rejected
    return None


def _number(value: object, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        raise ValueError(f"field '{field}' is {_kind(value)}; expected a number")
    return float(value)


def _level(row: Mapping[str, Any]) -> str:
    level = row.get("strength")
    if level is None:
        return ""
    known = {**LEVELS, **{f"{side} {name}": word for side in "ab" for name, word in LEVELS.items()}}
    if not isinstance(level, str) or level.strip().lower() not in known:
        raise ValueError(f"field 'strength' is {_kind(level)}; expected {' or '.join(LEVELS)}")
    return known[level.strip().lower()]


def _first(row: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((name for name in names if row.get(name) is not None), None)


def question(content: str) -> Message:
    """A turn of the user."""
    return {"role": "user", "content": content}


def _answer(content: str) -> Message:
    return {"role": "assistant", "content": content}


def _kind(value: object) -> str:
    if value is None:
        return "not there"
    if isinstance(value, str):
        return f"{value[:40]!r}" if value.strip() else "empty"
    return f"{type(value).__name__} {str(value)[:40]}"
