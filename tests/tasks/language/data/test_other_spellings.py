"""Rows as other tools write them, in which a part is easily lost without a word."""

import json

import pytest

from tasks.language.data.columns import LeftOutError
from tasks.language.data.forms import parse_demonstration, parse_preference_pair
from tasks.language.data.problem_forms import parse_general_problem

SYSTEM = {"role": "system", "content": "Be brief."}
ASK, REPLY = {"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}
AGAIN, OTHER = {"role": "user", "content": "And?"}, {"role": "assistant", "content": "No."}
ANSWERS = {"chosen": "So.", "rejected": "No."}
WHOLE = {"chosen": [ASK, REPLY], "rejected": [ASK, OTHER]}


@pytest.mark.parametrize(
    ("row", "prompt", "unread"),
    [
        ({"prompt": [SYSTEM, ASK], **WHOLE}, [SYSTEM, ASK], set()),
        ({"prompt": "Why? ", **WHOLE}, [{**ASK, "content": "Why? "}], set()),
        ({"prompt": "Something else.", **WHOLE}, [ASK], {"prompt"}),
        ({"prompt": "Why?", "messages": [ASK, REPLY], **WHOLE}, [ASK], {"messages"}),
        (
            {"prompt": "Why?", "chosen": [ASK, REPLY, AGAIN, REPLY], "rejected": [ASK, REPLY, AGAIN, OTHER]},
            [ASK, REPLY, AGAIN],
            set(),
        ),
    ],
    ids=str,
)
def test_a_prompt_beside_whole_conversations_is_used_or_named(row, prompt, unread):
    found = parse_preference_pair(row)
    assert (found.prompt, found.chosen, found.rejected, found.unread) == (prompt, REPLY, OTHER, unread)


@pytest.mark.parametrize("gap", ["\n\n", "\r\n\r\n"])
def test_a_prompt_of_hh_rlhf_that_ends_where_the_assistant_speaks(gap):
    prompt = f"{gap}Human: Why?{gap}Assistant: So.{gap}Human: And?{gap}Assistant:"
    assert parse_preference_pair({"prompt": prompt, **ANSWERS}).prompt == [ASK, REPLY, AGAIN]
    assert parse_demonstration({"prompt": prompt, "response": "So."}).messages == [ASK, REPLY, AGAIN, REPLY]
    assert parse_general_problem({"prompt": prompt})["question"] == "And?"
    whole = {side: f"{gap}Human: Why?{gap}Assistant: {text}" for side, text in ANSWERS.items()}
    assert parse_preference_pair(whole).prompt == [ASK]


def test_messages_as_json_in_a_column_of_texts():
    row = {"prompt": json.dumps([SYSTEM, ASK]), "chosen": json.dumps([REPLY]), "rejected": json.dumps([OTHER])}
    assert parse_preference_pair(row)[:3] == ([SYSTEM, ASK], REPLY, OTHER)
    assert parse_general_problem({"prompt": json.dumps([{"from": "human", "value": "Why?"}])})["question"] == "Why?"
    for text in ("[1, 2]", '[{"role": "user"}]', '[{"a": 1}, 2]', "[{", "[]"):
        assert parse_demonstration({"prompt": text, "completion": text}).messages[0]["content"] == text


@pytest.mark.parametrize("name", ["system", "system_prompt"])
def test_a_system_prompt_in_a_column(name):
    for row in ({"prompt": "Why?", "completion": "So."}, {"question": "Why?", "response": "So."}):
        found = parse_demonstration({**row, name: "Be brief."})
        assert (found.messages, found.unread) == ([SYSTEM, ASK, REPLY], frozenset())


@pytest.mark.parametrize("verdict", [False, "false", "False "])
def test_a_verdict_may_be_a_text(verdict):
    for name in ("label", "kto_tag"):
        row = {"prompt": "Why?", "completion": "So.", name: verdict}
        with pytest.raises(LeftOutError, match=r"^labelled as bad answers$"):
            parse_demonstration(row)
        assert parse_demonstration({**row, name: "true"}).unread == frozenset()
    assert parse_demonstration({"prompt": "Why?", "completion": "So.", "label": "tides"}).unread == {"label"}
