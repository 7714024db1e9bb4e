"""Labelled reviews: the forms that are read, and what is said of others."""

import pytest

from tasks.common.errors import DataError
from tasks.extensions.reviews import labelled_reviews
from tasks.language.data.rows import Row


def rows(*values):
    return [Row(one, f"own-{number}", f"own.jsonl: line {number + 1}") for number, one in enumerate(values)]


def test_a_text_is_cut_behind_its_opening():
    found = labelled_reviews.parse_labelled_reviews(
        rows({"sentence": " a  stirring , funny film ", "label": 1}), "sentence", "label", 2
    )
    assert found == [{"review_id": "own-0", "opening": "a stirring", "continuation": ", funny film", "positive": True}]
    [short] = labelled_reviews.parse_labelled_reviews(
        rows({"sentence": "so so", "label": "neg"}), "sentence", "label", 2
    )
    assert (short["continuation"], short["positive"]) == ("", False)


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
        labelled_reviews.parse_labelled_reviews(rows(row), "sentence", "label", 1)
