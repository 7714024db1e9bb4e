"""Texts with labels: the forms that are read, and what is said of others."""

import pytest

from tasks.common.errors import DataError
from tasks.language.data import labelled_texts
from tasks.language.data.rows import Row


def rows(*values):
    return [Row(one, f"own-{number}", f"own.jsonl: line {number + 1}") for number, one in enumerate(values)]


@pytest.mark.parametrize(
    ("value", "positive"),
    [
        (1, True),
        (0, False),
        (True, True),
        (False, False),
        ("positive", True),
        ("Negative", False),
        ("1", True),
        ("0", False),
    ],
)
def test_labels(value, positive):
    assert labelled_texts.parse_boolean_label({"label": value}, "label") is positive


def test_answers_in_kto_s_form():
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "2 + 2?"},
    ]
    given = {"prompt": turns, "completion": [{"role": "assistant", "content": "4"}], "label": True}
    plain, talk = labelled_texts.parse_labelled_answers(
        rows({"prompt": "1 + 1?", "completion": " 3", "label": False}, given)
    )
    assert plain == {"solution_id": "own-0", "prompt": "1 + 1?", "history": "", "response": "3", "right": False}
    assert (talk["prompt"], talk["response"], talk["right"]) == ("2 + 2?", "4", True)
    assert '"Yes?"' in talk["history"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"completion": "4", "label": 1}, "line 1: field 'prompt'"),
        ({"prompt": "2 + 2?", "label": 1}, "line 1: field 'completion'"),
        ({"prompt": "2 + 2?", "completion": " ", "label": 1}, "line 1: field 'completion' is empty"),
        ({"prompt": "2 + 2?", "completion": "4", "label": "maybe"}, "line 1: field 'label' has 'maybe'"),
    ],
)
def test_wrong_answers_are_told_in_one_line(row, said):
    with pytest.raises(DataError, match=said):
        labelled_texts.parse_labelled_answers(rows(row))
