"""Conversations and pairs in other people's forms: told apart by their columns, faults named by their field."""

import json

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.common.errors import StageError
from tasks.language.data import forms, messages
from tasks.language.data.forms import AnswerPair, join_prompt, parse_demonstration, parse_preference_pair, split_prompt
from tasks.language.data.rows import Row, parse_row, read_file

SYSTEM = {"role": "system", "content": "Be brief."}
ASK, REPLY = {"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}
AGAIN, MORE = {"role": "user", "content": "And?"}, {"role": "assistant", "content": "More."}
OTHER = {"role": "assistant", "content": "No."}
SHAREGPT = [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "So."}]
CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
TOOLS = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "3", "name": "add"}

DEMONSTRATIONS = {
    "messages": ({"messages": [SYSTEM, ASK, REPLY, AGAIN, MORE]}, [SYSTEM, ASK, REPLY, AGAIN, MORE]),
    "messages beside a prompt": ({"prompt": "Why?", "prompt_id": "1", "messages": [ASK, REPLY]}, [ASK, REPLY]),
    "ShareGPT": ({"conversations": SHAREGPT}, [ASK, REPLY]),
    "ShareGPT, with roles": ({"conversations": [ASK, REPLY]}, [ASK, REPLY]),
    "ShareGPT with a system prompt": ({"conversations": SHAREGPT, "system": "Be brief."}, [SYSTEM, ASK, REPLY]),
    "ShareGPT with an empty one": ({"conversation": SHAREGPT, "system": " "}, [ASK, REPLY]),
    "ShareGPT with its own": (
        {"conversations": [{"from": "system", "value": "Be brief."}, *SHAREGPT], "system": None},
        [SYSTEM, ASK, REPLY],
    ),
    "ShareGPT with tools": (
        {"conversations": [*SHAREGPT, {"from": "observation", "value": "3"}, {"from": "gpt", "value": "More."}]},
        [ASK, REPLY, {"role": "tool", "content": "3"}, MORE],
    ),
    "prompt and completion": ({"prompt": "Why?", "completion": "So."}, [ASK, REPLY]),
    "prompt and response": ({"prompt": "Why?", "response": "So."}, [ASK, REPLY]),
    "prompt and output": ({"prompt": "Why?", "output": "So."}, [ASK, REPLY]),
    "prompt and completion as messages": ({"prompt": [SYSTEM, ASK], "completion": [REPLY]}, [SYSTEM, ASK, REPLY]),
    "Alpaca": ({"instruction": "Why?", "input": "", "output": "So."}, [ASK, REPLY]),
    "Alpaca with an input": (
        {"instruction": "Add.", "input": "1 2\n", "output": "3", "text": "### Instruction"},
        [{"role": "user", "content": "Add.\n\n1 2"}, {"role": "assistant", "content": "3"}],
    ),
    "Alpaca without": ({"instruction": "Why?", "response": "So."}, [ASK, REPLY]),
    "question and answer": ({"question": "Why?", "answer": "So."}, [ASK, REPLY]),
    "question, solution and answer": ({"question": "Why?", "solution": "So.", "answer": "7"}, [ASK, REPLY]),
    "problem and solution": ({"problem": "Why?", "solution": "So.", "answer": "7"}, [ASK, REPLY]),
    "a pair": ({"prompt": "Why?", "chosen": "So.", "rejected": "No."}, [ASK, REPLY]),
    "a pair of conversations": ({"chosen": [ASK, REPLY], "rejected": [ASK, OTHER]}, [ASK, REPLY]),
}


@pytest.mark.parametrize("name", DEMONSTRATIONS)
def test_each_form_of_conversations(name):
    row, turns = DEMONSTRATIONS[name]
    found = parse_demonstration(row)
    assert (found.messages, found.text) == (turns, "")


def test_running_text():
    assert parse_demonstration({"text": " Once upon a time. "}) == ([], "Once upon a time.", frozenset())
    assert parse_demonstration({"text": "x", "question": "Why?", "answer": "So."}) == ([ASK, REPLY], "", {"text"})


def test_the_forms_named_in_messages_are_those_that_are_read():
    """DEMONSTRATIONS of the module names no columns that make no form, and each form of it is tested here."""
    for form in forms.DEMONSTRATIONS.split(" | "):
        names = form.partition(" (")[0].replace(" and ", ", ").split(", ")
        tested = [{*row} for row, _ in DEMONSTRATIONS.values()] + [{"text"}]
        assert any({*names} <= columns for columns in tested), form


def test_parts_of_a_message_are_joined_and_its_other_keys_stay():
    parts = [{"type": "text", "text": "Wh"}, {"type": "text", "text": "y?"}]
    assert parse_demonstration({"messages": [{**ASK, "content": parts}, REPLY]}).messages == [ASK, REPLY]
    assert parse_demonstration({"messages": [ASK, TOOLS, RESULT, REPLY]}).messages == [ASK, TOOLS, RESULT, REPLY]
    silent = {name: value for name, value in TOOLS.items() if name != "content"}
    assert parse_demonstration({"messages": [ASK, {**silent, "content": None}, RESULT, REPLY]}).messages[1] == TOOLS


def test_nulls_that_parquet_fills_in_are_no_keys(tmp_path):
    """A column's struct has every key of every row; the rows read as they were written."""
    rows = [
        {"messages": [ASK, TOOLS, RESULT, REPLY]},
        {"messages": [ASK, REPLY]},
        {"prompt": "Why?", "completion": "So."},
    ]
    pd.DataFrame(rows).to_parquet(tmp_path / "x.parquet")
    found = [parse_row(row, parse_demonstration).messages for row in read_file(tmp_path / "x.parquet")]
    assert found == [[ASK, TOOLS, RESULT, REPLY], [ASK, REPLY], [ASK, REPLY]]


def one_line(row, form):
    with pytest.raises(StageError) as stopped:
        parse_row(Row(row, "x-0", "x.jsonl: line 1"), form)
    line = str(stopped.value)
    assert line.startswith("x.jsonl: line 1: ")
    assert "\n" not in line
    assert len(line) < 500
    return line.removeprefix("x.jsonl: line 1: ")


TURN = "expected a message with role and content"
ROLES = "expected system, developer, user, assistant, tool"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, f"expected columns {forms.DEMONSTRATIONS}; got none"),
        ({"title": "a", "body": "b"}, f"expected columns {forms.DEMONSTRATIONS}; got title, body"),
        ({"prompt": "Why?"}, f"expected columns {forms.DEMONSTRATIONS}; got prompt"),
        ({"problem": "Why?"}, f"expected columns {forms.DEMONSTRATIONS}; got problem"),
        ({"messages": None}, f"expected columns {forms.DEMONSTRATIONS}; got messages"),
        ({"messages": []}, "field 'messages' is list []; expected a list of messages with role and content"),
        ({"messages": "Why?"}, "field 'messages' is 'Why?'; expected a list of messages"),
        ({"messages": {"role": "user"}}, "field 'messages' is dict"),
        ({"messages": ["Why?"]}, f"field 'messages[0]' is 'Why?'; {TURN}"),
        ({"messages": [ASK, None]}, f"field 'messages[1]' is not there; {TURN}"),
        ({"messages": [{"content": "Why?"}]}, f"field 'messages[0].role' is not there; {ROLES}"),
        ({"messages": [{**ASK, "role": "narrator"}]}, f"field 'messages[0].role' is 'narrator'; {ROLES}"),
        ({"messages": [{**ASK, "role": ["user"]}]}, f"field 'messages[0].role' is list ['user']; {ROLES}"),
        ({"conversations": [{"from": "bing", "value": "x"}]}, f"field 'conversations[0].role' is 'bing'; {ROLES}"),
        ({"messages": [ASK, {"role": "assistant"}]}, "field 'messages[1].content' is not there; expected text"),
        ({"messages": [{**ASK, "content": 3}]}, "field 'messages[0].content' is int 3; expected text"),
        (
            {"messages": [{**ASK, "content": [{"type": "image_url", "image_url": "x"}]}]},
            "field 'messages[0].content' has parts that are no text; expected text",
        ),
        ({"messages": [SYSTEM, ASK]}, "expected at least one turn of the assistant; there is none to learn from"),
        ({"conversations": SHAREGPT[:1]}, "expected at least one turn of the assistant"),
        ({"prompt": "Why?", "completion": [ASK]}, "expected at least one turn of the assistant"),
        ({"prompt": " ", "completion": "So."}, "field 'prompt' is empty; expected text or messages"),
        ({"prompt": 3, "completion": "So."}, "field 'prompt' is int 3; expected text or messages"),
        ({"prompt": "Why?", "completion": 3}, "field 'completion' is int 3; expected text or messages"),
        ({"instruction": "", "output": "So."}, "field 'instruction' is empty; expected text"),
        ({"instruction": "Why?", "input": ["a"], "output": "So."}, "field 'input' is list ['a']; expected text"),
        ({"instruction": "Why?", "output": ""}, "without an answer"),
        ({"question": None, "answer": "So."}, "field 'question' is not there; expected text"),
        ({"question": "Why?", "answer": 3}, "field 'answer' is int 3; expected text"),
        ({"problem": "Why?", "solution": " "}, "without an answer"),
        ({"text": ""}, "field 'text' is empty; expected text"),
        ({"prompt": "Why?", "chosen": "So."}, f"expected columns {forms.PAIRS}; got prompt, chosen"),
        ({"messages": [ASK, {**REPLY, "content": "\ud800"}]}, "field 'messages' has half a character"),
        ({"n\nn": 1, "x" * 999: 2}, "expected columns "),
        ({"messages": [{"role": "a\nb", "content": "x"}]}, "field 'messages[0].role' is 'a\\nb'"),
    ],
    ids=str,
)
def test_a_row_that_is_no_conversation_is_named(row, said):
    assert one_line(row, parse_demonstration).startswith(said)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "Why?", "chosen": "So.", "rejected": "No."},
        {"prompt": [ASK], "chosen": [REPLY], "rejected": [OTHER]},
        {"prompt": [ASK], "chosen": "So.", "rejected": "No."},
        {"chosen": [ASK, REPLY], "rejected": [ASK, OTHER]},
        {"prompt": "Why?", "chosen": [ASK, REPLY], "rejected": [ASK, OTHER]},  # UltraFeedback: whole conversations
        {"prompt": None, "chosen": [ASK, REPLY], "rejected": [ASK, OTHER]},
        {"conversations": [SYSTEM], "prompt": "Why?", "chosen": "So.", "rejected": "No."},
    ],
    ids=str,
)
def test_each_form_of_pairs(row):
    assert parse_preference_pair(row)[:5] == AnswerPair([ASK], REPLY, OTHER, None, "")[:5]


def test_a_pairs_prompt_may_have_several_turns():
    turns = [SYSTEM, ASK, REPLY, AGAIN]
    expected = AnswerPair(turns, MORE, OTHER, None, "")
    assert parse_preference_pair({"prompt": turns, "chosen": "More.", "rejected": "No."}) == expected
    assert parse_preference_pair({"chosen": [*turns, MORE], "rejected": [*turns, OTHER]}) == expected


HISTORY = [["Why?", "So."]]


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        ({"conversations": SHAREGPT[:1], "chosen": SHAREGPT[1], "rejected": {"from": "gpt", "value": "No."}}, [ASK]),
        ({"instruction": "Why?", "input": "", "chosen": "So.", "rejected": "No."}, [ASK]),
        ({"question": "Why?", "system": "Be brief.", "chosen": "So.", "rejected": "No."}, [SYSTEM, ASK]),
        ({"instruction": "And?", "history": HISTORY, "chosen": "So.", "rejected": "No."}, [ASK, REPLY, AGAIN]),
        ({"chosen": "\n\nHuman: Why?\n\nAssistant: So.", "rejected": "\n\nHuman: Why?\n\nAssistant: No."}, [ASK]),
        (
            {
                "chosen": "\n\nHuman: Why?\n\nAssistant: So.\n\nHuman: And?\n\nAssistant: So.",
                "rejected": "\n\nHuman: Why?\n\nAssistant: So.\n\nHuman: And?\n\nAssistant: No.",
            },
            [ASK, REPLY, AGAIN],
        ),
    ],
    ids=["LLaMA-Factory", "Alpaca", "question", "history", "HH-RLHF", "HH-RLHF in turns"],
)
def test_each_form_of_pairs_of_other_tools(row, prompt):
    found = parse_preference_pair({**row, "note": "x"})
    assert (found.prompt, found.chosen, found.rejected) == (prompt, REPLY, OTHER)
    assert found.unread == {"note"}
    assert parse_demonstration(row).messages == [*prompt, REPLY]


def test_a_row_of_our_own_table_is_read_whole():
    own = {"comparison_id": "1", "prompt_id": "1", "prompt": "Why?", "strength": "a better", "chosen_ended": True}
    call = messages.dump_json_field(TOOLS, "x")
    own |= {
        "rejected_ended": True,
        "chosen": messages.format_message_text(TOOLS),
        "rejected": "No.",
        "chosen_message": call,
    }
    found = parse_preference_pair({**own, "rejected_message": "", "note": "x"})
    assert (found.chosen, found.rejected, found.unread) == (TOOLS, OTHER, {"note"})


def test_a_text_that_only_mentions_a_speaker_is_no_transcript():
    assert messages.parse_transcript("Human: Why?") == []
    assert messages.parse_transcript("He said:\n\nHuman: Why?\n\nAssistant: So.") == []
    assert parse_preference_pair(
        {"prompt": "Say it.", "chosen": "\n\nHuman: a\n\nAssistant: b", "rejected": "x"}
    ).prompt == [{"role": "user", "content": "Say it."}]


def test_answers_that_are_more_than_a_text_stay_whole():
    found = parse_preference_pair({"prompt": [ASK], "chosen": [TOOLS], "rejected": [{**OTHER, "reasoning": "Hm."}]})
    assert found.chosen == TOOLS
    assert found.rejected == {**OTHER, "reasoning_content": "Hm."}
    assert messages.format_message_text(found.chosen) == '{"name": "add", "arguments": {"a": 1}}'


PAIR = {"prompt": "Why?", "chosen": "So.", "rejected": "No."}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt": "Why?", "chosen": "So."}, f"expected columns {forms.PAIRS}; got prompt, chosen"),
        ({"chosen": "So.", "rejected": "No."}, f"expected columns {forms.PAIRS}; there is no prompt"),
        ({"chosen": [REPLY], "rejected": [OTHER]}, f"expected columns {forms.PAIRS}; there is no prompt"),
        ({"prompt": "Why?", "chosen": None, "rejected": "No."}, "without an answer"),
        ({"prompt": "Why?", "chosen": "So.", "rejected": None}, "field 'rejected' is not there; expected text or"),
        ({"prompt": "Why?", "chosen": "So.", "rejected": 3}, "field 'rejected' is int 3; expected text or messages"),
        ({"prompt": "", "chosen": "So.", "rejected": "No."}, "field 'prompt' is empty"),
        (
            {"chosen": [ASK, REPLY], "rejected": [AGAIN, OTHER]},
            "fields 'chosen' and 'rejected' differ before their last turn",
        ),
        ({"chosen": [ASK, REPLY], "rejected": [SYSTEM, ASK, OTHER]}, "fields 'chosen' and 'rejected' differ"),
        ({"chosen": [ASK, REPLY], "rejected": [OTHER]}, "fields 'chosen' and 'rejected' differ before their last turn"),
        (
            {"chosen": [ASK], "rejected": [ASK, OTHER]},
            "field 'chosen' ends with a turn of user; expected the assistant's",
        ),
        (
            {"prompt": "Why?", "chosen": [REPLY, MORE], "rejected": [REPLY, OTHER]},
            "fields 'chosen' and 'rejected' have several turns",
        ),
        (
            {"prompt": [ASK, REPLY], "chosen": "So.", "rejected": "No."},
            "field 'prompt' ends with a turn of the assistant",
        ),
        (
            {**PAIR, "strength": "worse"},
            "field 'strength' is 'worse'; expected negligibly better or slightly better or better or",
        ),
        ({**PAIR, "strength": 3}, "field 'strength' is int 3"),
        ({**PAIR, "score_chosen": "8", "score_rejected": 2}, "field 'score_chosen' is '8'; expected a number"),
        (
            {**PAIR, "score_chosen": 8, "score_rejected": float("nan")},
            "field 'score_rejected' is float nan; expected a number",
        ),
        (
            {**PAIR, "score_chosen": 10**400, "score_rejected": 1},
            f"field 'score_chosen' is int 1{'0' * 39}; expected a number",
        ),
        (
            {"prompt": None, "chosen": "So.", "reject": "No."},
            f"expected columns {forms.PAIRS}; got prompt (null), chosen",
        ),
        ({"prompt": b"Why?", "chosen": "So.", "rejected": "No."}, "field 'prompt' is bytes b'Why?'; expected text"),
        ({**PAIR, "score_chosen": True, "score_rejected": 1}, "field 'score_chosen' is bool True; expected a number"),
    ],
    ids=str,
)
def test_a_row_that_is_no_pair_is_named(row, said):
    assert one_line(row, parse_preference_pair).startswith(said)


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(messages.ROLES), "content": TEXT},
    optional={"name": TEXT, "tool_calls": st.just(TOOLS["tool_calls"])},
)


@given(st.lists(MESSAGE), TEXT.filter(str.strip))
@settings(max_examples=25)
def test_a_prompt_survives_its_table(before, asked):
    turns = [*before, {"role": "user", "content": asked}]
    question, history = split_prompt(turns)
    assert join_prompt(question, history) == turns
    assert question == asked
    assert (history == "") == (not before)
    assert forms.parse_conversation(turns, "x") == turns, "messages in the plain form stay as they are"


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        ([], "ends with a turn of nobody; expected the user's"),
        ([ASK, REPLY], "ends with a turn of assistant"),
        ([SYSTEM, {"role": "user", "content": " "}], "last turn is empty"),
    ],
)
def test_a_prompt_that_no_user_asks_is_refused(turns, said):
    with pytest.raises(ValueError, match=said):
        split_prompt(turns)


def test_a_prompt_may_end_with_what_a_tool_said():
    """Its text is the prompt's, in our tables and read from them again, and the turn stays the tool's."""
    turns = [ASK, TOOLS, {**RESULT, "tool_call_id": "1"}]
    question, history = split_prompt(turns)
    assert question == "3"
    assert join_prompt(question, history) == turns
    assert (
        forms.parse_preference_pair({"prompt": question, "history": history, "chosen": "So.", "rejected": "No."}).prompt
        == turns
    )
    assert [turn["role"] for turn in forms.parse_conversation(history, "history")] == ["user", "assistant", "tool"]


def test_a_demonstrated_problem():
    row = {"problem_id": "train-3", "question": "Why?", "history": json.dumps([SYSTEM]), "solution": "x"}
    assert forms.build_demonstration_row(row, "So.") == {
        "demonstration_id": "train-3",
        "messages": json.dumps([SYSTEM, ASK, REPLY]),
        "text": "",
    }


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.just([ASK, REPLY]) | st.just([SYSTEM, ASK]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "content", "from", "value", "x"]), inner)
    ),
    max_leaves=6,
)
NAMES = [
    "messages",
    "conversations",
    "system",
    "prompt",
    "completion",
    "instruction",
    "input",
    "output",
    "question",
    "answer",
]
NAMES += ["problem", "solution", "chosen", "rejected", "text", "strength", "score_chosen", "score_rejected", "metadata"]


@pytest.mark.parametrize("form", [parse_demonstration, parse_preference_pair])
@given(row=st.dictionaries(st.sampled_from(NAMES), VALUES))
@settings(max_examples=25)
def test_any_row_is_read_or_named(form, row):
    """Whatever JSON holds, the end is a conversation or one line."""
    found, said = None, ""
    try:
        found = parse_row(Row(row, "x-0", "x.jsonl: line 1"), form)
    except StageError as error:
        said = str(error)
    if found is None:
        assert said.startswith("x.jsonl: line 1: ")
        assert "\n" not in said
        return
    if form is parse_demonstration:
        assert any(turn["role"] == "assistant" for turn in found.messages) != bool(found.text)
    else:
        assert found.prompt[-1]["role"] != "assistant"
    for turn in found[0]:
        assert turn["role"] in (*messages.ROLES, messages.TOOLS)
        assert isinstance(turn["content"], str)
