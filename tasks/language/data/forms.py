"""The forms in which people keep conversations and preference pairs, told apart by their columns.

Each reader takes one row as a mapping and raises ValueError naming the field at fault; rows.py adds file and line. A
conversation is a list of messages in the form of `messages`, before them the tools that it declares. `unread` has what
a row says beside what its form reads.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tasks.language.data import messages, preference_strength
from tasks.language.data.columns import BAD_ANSWER, UNANSWERED, UNLEARNED, Columns, LeftOutError
from tasks.language.data.messages import TOOLS, Message, describe_value

Conversation = list[Message]
TURNS = ("messages", "conversations", "conversation")
RESPONSES = ("completion", "response", "output")
DECLARED = ("tools", "functions")  # columns that declare tools
SYSTEM = ("system", "system_prompt")
PROMPTS = ("prompt", "instruction", "question", *TURNS)  # columns that hold what a pair answers
ASKING = ("system", "developer", "user", "tool", "human", "prompter", "observation", "function", "tool_response")
VERDICTS = ("label", "kto_tag")  # columns that say whether an answer is a good one (KTO, arXiv:2402.01306)
OURS = ("comparison_id", "prompt_id", "chosen_ended", "rejected_ended", "chosen_tokens", "rejected_tokens", "person")
DEMONSTRATIONS = (
    "messages | conversations (ShareGPT) | prompt and completion | instruction, input and output | "
    "question and answer | problem and solution | prompt, chosen and rejected | text"
)
PAIRS = "prompt, chosen and rejected, as text or messages; or chosen and rejected alone, as messages"


class Demonstration(NamedTuple):
    """What SFT imitates: a conversation, of which the assistant's turns are learned, or plain text, of which all is."""

    messages: Conversation
    text: str
    unread: frozenset[str] = frozenset()  # columns, and keys of messages


class AnswerPair(NamedTuple):
    """Two answers to one prompt, of which the first is preferred."""

    prompt: Conversation  # ends with the turn that is answered
    chosen: Message
    rejected: Message
    scores: tuple[float, float] | None  # of chosen and rejected, where somebody gave them
    level: str  # by how much, a word of tables/preferences.py's LEVELS; that of "better" where nobody said it
    unread: frozenset[str] = frozenset()


def parse_demonstration(values: Mapping[str, Any]) -> Demonstration:
    """A row of a form of DEMONSTRATIONS. LeftOutError where nothing is to learn, or the answer is labelled as bad."""
    row = Columns(values)
    _check_answer_label(row)
    if row.peek("text") is not None and not _has_answer_columns(row):
        return Demonstration([], get_required_text(row, "text"), row.unread())
    if _is_pair(row):
        preferred = _parse_pair_columns(row)
        turns = [*preferred.prompt, preferred.chosen]
    else:
        turns = add_system_and_tools(row, _parse_turns(row))
    return Demonstration(_mark_empty_answers_unlearned(turns), "", row.unread())


def _is_pair(row: Columns) -> bool:
    """Whether the answer is a pair's chosen one: other tools keep the turns beside it, or the whole."""
    turns = _find_filled_column(row, TURNS)
    if "chosen" not in row or turns is None:
        return "chosen" in row
    last = row.peek(turns)[-1:] if isinstance(row.peek(turns), list) else []
    return bool(last) and isinstance(last[0], Mapping) and last[0].get("from", last[0].get("role")) in ASKING


def _parse_turns(row: Columns) -> Conversation:
    """A conversation in any of the forms but a pair's."""
    if (name := _find_filled_column(row, TURNS)) is not None:
        return parse_conversation(row[name], name, row.unread_keys)
    if row.peek("prompt") is not None and (name := _find_present_column(row, RESPONSES)) is not None:
        prompt = parse_text_or_messages(row["prompt"], "prompt", "user", row.unread_keys)
        return [*prompt, *_parse_answer_column(row, name)]
    if "instruction" in row and (name := _find_present_column(row, RESPONSES)) is not None:
        return [*_parse_history(row), build_instruction_turn(row), *_parse_answer_column(row, name)]
    if "question" in row and (name := _find_present_column(row, ("solution", "answer", "response"))) is not None:
        return [make_user_turn(get_required_text(row, "question")), *_parse_answer_column(row, name)]
    if "problem" in row and "solution" in row:
        return [make_user_turn(get_required_text(row, "problem")), *_parse_answer_column(row, "solution")]
    raise ValueError(f"expected columns {DEMONSTRATIONS}; got {format_column_names(row)}")


def _has_answer_columns(row: Columns) -> bool:
    """Whether a row with a `text` is in another form as well, which then goes before it."""
    if _find_filled_column(row, TURNS) is not None or "chosen" in row:
        return True
    column_pairs = (
        ("prompt", RESPONSES),
        ("instruction", RESPONSES),
        ("question", ("solution", "answer", "response")),
        ("problem", ("solution",)),
    )
    return any(
        row.peek(name) is not None and _find_present_column(row, answers) is not None for name, answers in column_pairs
    )


def _parse_answer_column(row: Columns, name: str) -> Conversation:
    """A column that holds the answer, as text or messages."""
    value = row[name]
    if is_empty_answer(value):
        raise LeftOutError(UNANSWERED)
    if name not in ("completion", "response") and not isinstance(value, str):
        raise ValueError(f"field '{name}' is {describe_value(value)}; expected text")
    return parse_text_or_messages(
        value.strip() if isinstance(value, str) else value, name, "assistant", row.unread_keys
    )


def _mark_empty_answers_unlearned(turns: Conversation) -> Conversation:
    """The conversation, with empty answers as context; LeftOutError where the last one is empty, or none is learned."""
    answers = [turn for turn in turns if turn["role"] == "assistant"]
    if not answers:
        raise ValueError("expected at least one turn of the assistant; there is none to learn from")
    if messages.is_empty_message(answers[-1]):
        raise LeftOutError(UNANSWERED)
    for answer in answers:
        if messages.is_empty_message(answer):
            answer["weight"] = 0
    if all(answer.get("weight") == 0 for answer in answers):
        raise LeftOutError(UNLEARNED)
    return turns


def _check_answer_label(row: Columns) -> None:
    """LeftOutError where a row of KTO's form, or LLaMA-Factory's, says that its answer is a bad one."""
    for name in VERDICTS:
        verdict = row.peek(name)
        if isinstance(verdict, str):
            verdict = {"true": True, "false": False}.get(verdict.strip().lower(), verdict)
        if isinstance(verdict, bool) or (name == "label" and verdict in (0, 1) and "completion" in row):
            row.use(name)
            if not verdict:
                raise LeftOutError(BAD_ANSWER)


def parse_preference_pair(values: Mapping[str, Any]) -> AnswerPair:
    """A row of PAIRS. Where `chosen` and `rejected` are whole conversations, what they share is the prompt.
    LeftOutError where the chosen answer is empty.
    """
    return _parse_pair_columns(Columns(values))


def _parse_pair_columns(row: Columns) -> AnswerPair:
    if "chosen" not in row or "rejected" not in row:
        raise ValueError(f"expected columns {PAIRS}; got {format_column_names(row)}")
    if is_empty_answer(row.peek("chosen")):
        raise LeftOutError(UNANSWERED)
    sides = {name: _parse_pair_side(row, name) for name in ("chosen", "rejected")}
    for name, turns in sides.items():
        if turns[-1]["role"] != "assistant":
            raise ValueError(f"field '{name}' ends with a turn of {turns[-1]['role']}; expected the assistant's")
    shared = sides["chosen"][:-1]
    if shared != sides["rejected"][:-1]:
        raise ValueError("fields 'chosen' and 'rejected' differ before their last turn; expected one prompt")
    prompt = _parse_pair_prompt(row)
    if any(message["role"] != "assistant" for message in shared):  # whole conversations: they hold the prompt
        prompt = _choose_longer_prompt(row, prompt, shared)
    elif shared:
        raise ValueError("fields 'chosen' and 'rejected' have several turns; expected one answer to the prompt")
    if not prompt:
        raise ValueError(f"expected columns {PAIRS}; there is no prompt")
    if prompt[-1]["role"] == "assistant":
        raise ValueError("field 'prompt' ends with a turn of the assistant; expected the turn that is answered")
    prompt = [remove_weight(turn) for turn in add_system_and_tools(row, prompt)]
    chosen, rejected = (remove_weight(sides[name][-1]) for name in ("chosen", "rejected"))
    if messages.is_empty_message(chosen):
        raise LeftOutError(UNANSWERED)
    scores = preference_strength.find_pair_scores(row)
    level = preference_strength.parse_strength_level(row)
    if "comparison_id" in row:
        row.use("chosen", "rejected", *OURS)
    return AnswerPair(prompt, chosen, rejected, scores, level, row.unread())


def _parse_pair_side(row: Columns, name: str) -> Conversation:
    """One of a pair's answers: text, message, messages, a whole transcript, or a message as our own tables keep it."""
    if written := row.get(f"{name}_message"):
        return parse_conversation(f"[{written}]", f"{name}_message", row.unread_keys)
    value = row[name]
    if isinstance(value, str) and not _has_prompt_column(row) and (turns := messages.parse_transcript(value)):
        return turns
    return parse_text_or_messages(value, name, "assistant", row.unread_keys)


def _has_prompt_column(row: Columns) -> bool:
    return any(row.peek(name) is not None for name in PROMPTS)


def _choose_longer_prompt(row: Columns, prompt: Conversation, shared: Conversation) -> Conversation:
    """The prompt of whole conversations: the turns that they share, or the row's own prompt where it ends with these. A
    prompt that has other turns than they is not read.
    """
    prompt_turns, turns = ([(turn["role"], turn["content"].strip()) for turn in part] for part in (prompt, shared))
    if prompt_turns[-len(turns) :] == turns:
        return prompt
    if not {*prompt_turns} <= {*turns}:
        row.unread_keys |= {name for name in PROMPTS if row.peek(name)}
    return shared


def _parse_pair_prompt(row: Columns) -> Conversation:
    """The turns that a pair answers, by the columns that hold them."""
    if row.peek("prompt") is not None:
        prompt = parse_text_or_messages(row["prompt"], "prompt", "user", row.unread_keys)
        return join_history_and_prompt(_parse_history(row), prompt)
    if row.peek("instruction") is not None:
        return [*_parse_history(row), build_instruction_turn(row)]
    if row.peek("question") is not None:
        return [*_parse_history(row), make_user_turn(get_required_text(row, "question"))]
    name = _find_filled_column(row, TURNS)
    return parse_conversation(row[name], name, row.unread_keys) if name else []


def _parse_history(row: Columns) -> Conversation:
    """The turns before a prompt: JSON of messages, as our own tables have them, or question-answer pairs (Alpaca)."""
    history = row.peek("history")
    if not history:
        return []
    history = row["history"]
    if isinstance(history, list) and all(isinstance(turn, list | tuple) and len(turn) == 2 for turn in history):
        turns = []
        for query, answer in history:
            turns += [
                *parse_text_or_messages(query, "history", "user"),
                *parse_text_or_messages(answer, "history", "assistant"),
            ]
        return turns
    return parse_conversation(history, "history", row.unread_keys)


def add_system_and_tools(row: Mapping[str, Any], turns: Conversation) -> Conversation:
    """A conversation behind its row's columns `system` and `tools`, where it does not say these itself."""
    declared, turns = (turns[:1], turns[1:]) if turns and turns[0]["role"] == TOOLS else ([], turns)
    for name in DECLARED:
        if not declared and row.get(name):
            declared = messages.parse_tools(row[name], name)
    if turns and turns[0]["role"] not in ("system", "developer"):
        prompts = (row[name] for name in SYSTEM if isinstance(row.get(name), str) and row[name].strip())
        if system := next(prompts, ""):
            turns = [{"role": "system", "content": system}, *turns]
    return [*declared, *turns]


def parse_conversation(value: object, field: str, unread: set[str] | None = None) -> Conversation:
    """Messages with roles and contents, or ShareGPT's turns `{"from": "human", "value": ..}`; JSON of them, which some
    tables keep.

    Tools that the first message declares stand before it. Names of keys that are not read go to `unread`.
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"field '{field}' is text, and no JSON: {error}") from None
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not value:
        raise ValueError(
            f"field '{field}' is {describe_value(value)}; expected a list of messages with role and content"
        )
    unread_keys: set[str] = set()
    turns = [messages.parse_message(message, f"{field}[{number}]", unread_keys) for number, message in enumerate(value)]
    if any(turn["role"] == TOOLS for turn in turns[1:]):
        raise ValueError(f"field '{field}' declares tools behind its first turn; expected them before all turns")
    if turns[0]["role"] == TOOLS:
        turns = [*messages.parse_tools(turns[0]["content"], f"{field}[0].content"), *turns[1:]]
    elif value[0].get(TOOLS):
        turns = [*messages.parse_tools(value[0][TOOLS], f"{field}[0].{TOOLS}"), *turns]
    if unread is not None:
        unread |= unread_keys
    return turns


def parse_text_or_messages(value: object, field: str, role: str, unread: set[str] | None = None) -> Conversation:
    """Text as one turn of `role`, or a message, or messages."""
    if isinstance(value, str) and (written := messages.parse_json_turns(value)):
        return parse_conversation(written, field, unread)
    if isinstance(value, str):
        if not value.strip() and role == "user":
            raise ValueError(f"field '{field}' is empty; expected text or messages")
        turns = messages.parse_transcript(value) if role == "user" else []
        if turns and not turns[-1]["content"]:  # HH-RLHF's prompts end where the assistant speaks
            return turns[:-1]
        return [{"role": role, "content": value}]
    if isinstance(value, Mapping):
        return parse_conversation([value], field, unread)
    if not isinstance(value, list | tuple):
        raise ValueError(f"field '{field}' is {describe_value(value)}; expected text or messages")
    return parse_conversation(value, field, unread)


def build_instruction_turn(row: Mapping[str, Any]) -> Message:
    """Alpaca's `instruction` with its `input`, where that is not empty."""
    more = row.get("input")
    if more is not None and not isinstance(more, str):
        raise ValueError(f"field 'input' is {describe_value(more)}; expected text")
    context = f"\n\n{more.strip()}" if more and more.strip() else ""
    return make_user_turn(get_required_text(row, "instruction") + context)


def is_empty_answer(value: object) -> bool:
    """Whether a column that may hold an answer, as text or messages, is null or empty."""
    return value is None or value == [] or (isinstance(value, str) and not value.strip())


def get_required_text(row: Mapping[str, Any], field: str) -> str:
    """A field that has to be a text with something in it, without the spaces around it."""
    value = row.get(field)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"field '{field}' is {describe_value(value)}; expected text")
    return value.strip()


def split_prompt(prompt: Conversation) -> tuple[str, str]:
    """A prompt as tables keep it: the text of its last turn, and the turns before it as JSON, empty where there are
    none.

    A last turn that is a tool's stands there too, without its text. ValueError where the last turn is neither the
    user's nor a tool's.
    """
    last = prompt[-1]["role"] if prompt else "nobody"
    if last not in ("user", "tool"):
        raise ValueError(f"the prompt ends with a turn of {last}; expected the user's, or a tool's")
    *before, last_turn = prompt
    if not last_turn["content"].strip():
        raise ValueError("the prompt's last turn is empty; expected text")
    if last == "tool":
        before = [*before, {**last_turn, "content": "", messages.ASKED: True}]
    return str(last_turn["content"]), dump_messages_json(before) if before else ""


def remove_weight(message: Message) -> Message:
    """A turn of a prompt: what is learned of it is nobody's question."""
    return {name: value for name, value in message.items() if name != "weight"}


def join_prompt(prompt: str, history: str = "") -> Conversation:
    """The inverse of `split_prompt`."""
    return join_history_and_prompt(parse_messages_json(history), [make_user_turn(prompt)])


def join_history_and_prompt(history: Conversation, prompt: Conversation) -> Conversation:
    """A prompt behind the turns before it; it is the text of the last of those where that is a tool's without one."""
    if history and history[-1].get(messages.ASKED):
        waiting = {name: value for name, value in history[-1].items() if name != messages.ASKED}
        return [*history[:-1], {**waiting, "content": prompt[0]["content"]}]
    return [*history, *prompt]


def build_prompt_key(prompt: str, history: str | Conversation = "") -> tuple[str, ...]:
    """What tells a prompt from others: its turns, the spaces in them and around them aside."""
    before = parse_messages_json(history) if isinstance(history, str) else history
    turns = (f"{turn['role']} {turn['content']} {turn.get('tool_calls', '')}" for turn in before)
    return tuple(" ".join(turn.split()) for turn in (*turns, prompt))


def build_demonstration_row(problem: Mapping[str, Any], response: str) -> dict[str, Any]:
    """A row of Demonstrations: a row of Problems, answered by `response`."""
    prompt = join_prompt(problem["question"], problem.get("history", ""))
    messages = [*prompt, {"role": "assistant", "content": response}]
    return {"demonstration_id": problem["problem_id"], "messages": dump_messages_json(messages), "text": ""}


def parse_messages_json(text: str) -> Conversation:
    """The inverse of `dump_messages_json`; no messages for an empty text."""
    turns: Conversation = json.loads(text) if text else []
    return turns


def dump_messages_json(messages: Conversation) -> str:
    """Messages as the text that tables keep."""
    return json.dumps(messages, ensure_ascii=False)


def format_column_names(row: Mapping[str, Any]) -> str:
    """The names of a row's columns, for messages."""
    values = {name: row.peek(name) for name in row} if isinstance(row, Columns) else row
    named = (f"{name} (null)" if value is None else str(name) for name, value in values.items())
    return " ".join(", ".join(named).split())[:200] or "none"


def _find_filled_column(row: Columns, names: Sequence[str]) -> str | None:
    """The first of these columns that has something in it."""
    return next((name for name in names if row.peek(name) not in (None, "")), None)


def _find_present_column(row: Columns, names: Sequence[str]) -> str | None:
    """The first of these columns that has something in it, else the first that is there."""
    return _find_filled_column(row, names) or next((name for name in names if name in row), None)


def make_user_turn(content: str) -> Message:
    """A turn of the user."""
    return {"role": "user", "content": content}
