"""One message in the spellings that people's files have, and what is made of it."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.common.errors import DataError
from tasks.language.data import forms, messages
from tasks.language.data.columns import LeftOutError
from tasks.language.data.conversations import encode_answer, encode_conversation
from tasks.language.data.rows import parse_row, read_file
from tests.tasks.chats import chat_tokenizer
from tests.tasks.language.data.test_conversations import runs

ASK = {"role": "user", "content": "Where?"}
CALL = {"type": "function", "function": {"name": "find", "arguments": {"harbour": "H1"}}}
CALLING = {"role": "assistant", "content": "", "tool_calls": [CALL]}
TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}
DECLARED = {"role": "tools", "content": messages.dump_json_field([TOOL], "tools")}


def read(message):
    return messages.parse_message(message, "x", set())


@pytest.mark.parametrize(
    "message",
    [
        CALLING,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "tool_calls": [{"name": "find", "arguments": {"harbour": "H1", "town": None}}]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "find", "arguments": '{"harbour": "H1"}'}}]},
        {"role": "assistant", "tool_calls": '[{"name": "find", "arguments": {"harbour": "H1"}}]'},
        {"role": "assistant", "content": None, "function_call": {"name": "find", "arguments": '{"harbour": "H1"}'}},
        {"role": "assistant", "content": "", "tool_calls": [{"name": "find", "parameters": {"harbour": "H1"}}]},
        {"role": "assistant", "content": "", "tool_calls": [{"name": "find", "input": {"harbour": "H1"}}]},
        {"role": "assistant", "content": "", "tool_calls": [{"name": "find", "args": {"harbour": "H1"}, "index": 0}]},
        {"from": "function_call", "value": '{"name": "find", "arguments": {"harbour": "H1"}}'},
        {"role": "Assistant", "value": "", "tool_calls": CALL},
        {"from": "gpt", "value": "", "tool_calls": [CALL], "train": None},
    ],
    ids=str,
)
def test_every_spelling_of_a_call_is_one_call(message):
    assert read(message) == CALLING


def test_a_null_that_somebody_wrote_as_text_is_kept():
    call = {"name": "find", "arguments": '{"town": null}'}
    assert read({"role": "assistant", "tool_calls": [call]})["tool_calls"][0]["function"]["arguments"] == {"town": None}


def test_nulls_that_parquet_gives_each_call_are_left_out(tmp_path):
    """The column's struct has the arguments of all calls."""
    other = {"name": "ask", "arguments": {"town": "T", "deep": {"a": 1}}}
    rows = [{"messages": [ASK, {"role": "assistant", "tool_calls": [call]}]} for call in (CALL["function"], other)]
    pd.DataFrame(rows).to_parquet(tmp_path / "x.parquet")
    found = [parse_row(row, forms.parse_demonstration).messages[-1] for row in read_file(tmp_path / "x.parquet")]
    assert [one["tool_calls"][0]["function"] for one in found] == [CALL["function"], other]


@pytest.mark.parametrize("name", ["weight", "train", "trainable", "training", "loss_mask", "loss"])
def test_an_answer_that_is_not_learned_is_context(name):
    tokenizer = chat_tokenizer("ChatML")
    answers = [{"role": "assistant", "content": "There.", name: value} for value in (0, 1)]
    turns = forms.parse_demonstration({"messages": [ASK, answers[0], ASK, answers[1]]}).messages
    assert turns == [
        ASK,
        {"role": "assistant", "content": "There.", "weight": 0},
        ASK,
        {"role": "assistant", "content": "There."},
    ]
    before, learned = runs(tokenizer, *encode_conversation(tokenizer, turns))
    assert before.count("There.<|im_end|>") == 1
    assert learned == ["There.<|im_end|>"]
    with pytest.raises(ValueError, match=rf"^field 'x.{name}' is float 0.5; expected 0 or 1, true or false"):
        read({"role": "assistant", "content": "a", name: 0.5})


def test_what_is_not_read_of_a_message_is_named():
    unread = set()
    messages.parse_message({"role": "user", "content": "a", "mood": "x", "date": None, "weight": 1}, "x", unread)
    call = {"name": "find", "parametres": {"harbour": "H1"}, "id": "1"}
    messages.parse_message({"role": "assistant", "tool_calls": [call]}, "x", unread)
    assert unread == {"messages.mood", "messages.weight (user)", "messages.tool_calls.parametres"}


@pytest.mark.parametrize("name", messages.THOUGHTS)
def test_a_thought_has_one_name(name):
    assert read({"role": "assistant", "content": "So.", name: "Hm."}) == {
        "role": "assistant",
        "content": "So.",
        "reasoning_content": "Hm.",
    }
    parts = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "So."}]
    assert read({"role": "assistant", "content": parts})["reasoning_content"] == "Hm."


@pytest.mark.parametrize(
    "tools",
    [[TOOL], [TOOL["function"]], messages.dump_json_field([TOOL], "x"), [messages.dump_json_field(TOOL, "x")]],
    ids=["OpenAI's", "bare functions", "text", "a list of texts"],
)
def test_declared_tools_stand_before_the_turns(tools):
    answer = {"role": "assistant", "content": "There."}
    for column in forms.DECLARED:
        found = forms.parse_demonstration({"messages": [ASK, answer], column: tools})
        assert (found.messages, found.unread) == ([DECLARED, ASK, answer], frozenset())
    assert forms.parse_demonstration({"messages": [ASK, answer], "tools": []}).messages == [ASK, answer]
    [anthropic] = messages.parse_tools([{"name": "find", "input_schema": {"type": "object"}}], "x")
    assert anthropic == DECLARED
    system = {"role": "system", "content": "Be brief.", "tools": tools}
    assert forms.parse_demonstration({"messages": [system, ASK, answer]}).messages[0] == DECLARED


def test_tools_that_are_none_are_one_line():
    for wrong, said in (
        (["x"], "is text, and no JSON"),
        ([{"nom": 1}], "expected a tool with a name"),
        (3, "is int 3"),
    ):
        with pytest.raises(ValueError, match=said):
            messages.parse_tools(wrong, "tools")
    with pytest.raises(ValueError, match="declares tools behind its first turn"):
        forms.parse_conversation([ASK, DECLARED], "messages")


KNOWS = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}"
    "<tool_call>{{ c.function.name }}{{ ARGUMENTS }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize(
    "arguments", ["c.function.arguments | tojson", "c.function.arguments", "'' + c.function.arguments"]
)
def test_arguments_are_json_whether_the_template_wants_an_object_or_text(arguments):
    tokenizer = chat_tokenizer("Qwen 2.5")
    tokenizer.chat_template = KNOWS.replace("ARGUMENTS", arguments)
    turns = [DECLARED, ASK, CALLING, {"role": "tool", "content": "At 3."}, {"role": "assistant", "content": "There."}]
    before, call, _, answer = runs(tokenizer, *encode_conversation(tokenizer, turns))
    assert before.startswith('<|im_start|>system\n{"type": "function", "function": {"name": "find"')
    assert call == ['<tool_call>find{"harbour": "H1"}</tool_call><|im_end|>']
    assert answer == ["There.<|im_end|>"]


def test_a_template_that_does_not_know_tools_is_said(capfd):
    from tasks.language.data.prompts import print_unread_tools_warning

    tokenizer = chat_tokenizer("ChatML")
    turns = [DECLARED, ASK, {"role": "assistant", "content": "There."}]
    assert encode_conversation(tokenizer, turns) == encode_conversation(tokenizer, turns[1:])
    print_unread_tools_warning(tokenizer, [forms.dump_messages_json(turns), forms.dump_messages_json(turns[1:]), ""])
    assert (
        capfd.readouterr().err
        == "not read: the tools of 1 conversations, since the chat template does not know tools\n"
    )
    tokenizer.chat_template = KNOWS.replace("ARGUMENTS", "''")
    print_unread_tools_warning(tokenizer, [forms.dump_messages_json(turns)])
    assert capfd.readouterr().err == ""


# What gpt-oss does: a channel stands before an answer, and earlier answers end in another way than the last one.
CHANNELS = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>{{ m.content }}"
    "{{ '<|return|>' if loop.last else '<|end|>' }}{% else %}<|start|>{{ m.role }}<|message|>{{ m.content "
    "}}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)


@pytest.fixture
def channels():
    tokenizer = chat_tokenizer("ChatML")
    tokenizer.add_tokens(["<|start|>", "<|channel|>", "<|message|>", "<|return|>", "<|end|>"], special_tokens=True)
    tokenizer.chat_template = CHANNELS
    return tokenizer


def test_what_a_template_writes_before_an_answer_is_learned(channels):
    from tasks.language.data import chat

    answer = {"role": "assistant", "content": "final"}
    _, learned = runs(channels, *encode_conversation(channels, [ASK, answer]))
    assert learned == ["<|channel|>final<|message|>final<|return|>"]
    response = chat.encode_response(channels, "final")
    assert channels.decode(response) == learned[0]
    assert encode_answer(channels, [ASK], answer) == response
    assert chat.decode_response(channels, response) == "final"
    _before, first, between, second = runs(channels, *encode_conversation(channels, [ASK, answer, ASK, answer]))
    assert (first, between) == (
        ["<|channel|>final<|message|>final"],
        "<|end|><|start|>user<|message|>Where?<|end|><|start|>assistant",
    ), "a token that ends earlier answers alone is no end to sample"
    assert second == learned


def test_a_control_token_in_an_answer_behind_a_channel_is_text(channels):
    from tasks.language.data import chat

    control = channels.convert_tokens_to_ids(["<|channel|>", "<|message|>", "<|return|>"])
    said = "<|channel|>final<|message|>No.<|return|>"
    ids, mask = encode_conversation(channels, [ASK, {"role": "assistant", "content": said}])
    learned = [token for token, kept in zip(ids, mask, strict=True) if kept]
    assert [learned.count(token) for token in control] == [1, 1, 1]
    assert learned == chat.encode_response(channels, said)


@pytest.mark.parametrize(
    "content",
    [None, "", " \n", [], [{"type": "text", "text": ""}], "\u200b", "\ufeff \u00ad", "<think>\n\n</think>\n\n"],
)
def test_an_answer_in_which_nothing_is_said_is_empty(content):
    assert messages.is_empty_message(read({"role": "assistant", "content": content}))
    with pytest.raises(LeftOutError, match=r"^without an answer$"):
        forms.parse_demonstration({"messages": [ASK, {"role": "assistant", "content": content}]})
    for value in ([{"role": "assistant", "content": content}], *([] if isinstance(content, list) else [content])):
        with pytest.raises(LeftOutError, match=r"^without an answer$"):
            forms.parse_demonstration({"prompt": "a", "completion": value})
        with pytest.raises(LeftOutError, match=r"^without an answer$"):
            forms.parse_preference_pair({"prompt": "a", "chosen": value, "rejected": "b"})


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf"])), st.text(st.characters(categories=["L", "Z"])))
def test_a_text_is_empty_only_if_nothing_is_in_it(content, thought):
    message = {"role": "assistant", "content": content, "reasoning_content": thought}
    assert messages.is_empty_message(message) == (not content.strip() and not thought.strip())
    assert not messages.is_empty_message(CALLING)


def test_a_template_that_leaves_out_a_pairs_call_is_refused():
    with pytest.raises(DataError, match="leaves out its call of find"):
        encode_answer(chat_tokenizer("ChatML"), [ASK], CALLING)
