"""Texts with labels: the forms that are read, and what is said of others."""

import pytest

from tasks.common.errors import DataError
from tasks.language.data import labelled_texts
from tasks.language.data.rows import Row


def rows(*values):
    return [Row(one, f"own-{number}", f"own.jsonl: line {number + 1}") for number, one in enumerate(values)]


def test_a_text_is_cut_behind_its_opening():
    found = labelled_texts.reviews(rows({"sentence": " a  stirring , funny film ", "label": 1}), "sentence", "label", 2)
    assert found == [{"review_id": "own-0", "opening": "a stirring", "continuation": ", funny film", "positive": True}]
    [short] = labelled_texts.reviews(rows({"sentence": "so so", "label": "neg"}), "sentence", "label", 2)
    assert (short["continuation"], short["positive"]) == ("", False)


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
    assert labelled_texts.flag({"label": value}, "label") is positive


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"sentence": "a film", "label": 2},
            r"line 1: field 'label' has 2; expected 1 or 0, true or false, positive or negative",
        ),
        ({"sentence": "a film", "label": 0.9}, "field 'label' has 0.9; expected 1 or 0"),
        ({"sentence": "a film"}, "field 'label' is missing; there are sentence; expected 1 or 0"),
        ({"text": "a film", "label": 1}, "line 1: field 'sentence' is .*expected text"),
        ({"sentence": " ", "label": 1}, "line 1: field 'sentence' is .*expected text"),
    ],
)
def test_wrong_reviews_are_told_in_one_line(row, said):
    with pytest.raises(DataError, match=said):
        labelled_texts.reviews(rows(row), "sentence", "label", 1)


def test_answers_in_kto_s_form():
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "2 + 2?"},
    ]
    given = {"prompt": turns, "completion": [{"role": "assistant", "content": "4"}], "label": True}
    plain, talk = labelled_texts.answers(rows({"prompt": "1 + 1?", "completion": " 3", "label": False}, given))
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
        labelled_texts.answers(rows(row))
