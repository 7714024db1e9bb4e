"""Pairs at and above their limit: what is cut, what is left out, and how many of each are counted."""

import pandas as pd
import pytest

from tasks.common import models
from tasks.common.errors import DataError
from tasks.language.data import chat
from tasks.language.data.comparisons import ComparisonSet, Limit

ASKED = "Why?"
PAIRS = [([20, 21], [30]), ([20, 21, 22], [30, 31]), ([20, 21, 22, 23], [20, 21, 22, 23, 24])]  # tokens of one prompt's


@pytest.fixture(scope="module")
def words(made):
    return models.load_tokenizer(made / "tokenizer")


@pytest.fixture(scope="module")
def prompt(words):
    return chat.encode_prompt(words, ASKED)


def limited(words, tokens, truncation, pairs=PAIRS):
    rows = [
        {
            "comparison_id": f"{number}",
            "prompt_id": "one",
            "prompt": ASKED,
            "chosen": "a",
            "rejected": "b",
            "chosen_ended": True,
            "rejected_ended": True,
            "strength": "a better",
            "chosen_tokens": chosen,
            "rejected_tokens": rejected,
        }
        for number, (chosen, rejected) in enumerate(pairs)
    ]
    return ComparisonSet(pd.DataFrame(rows), words, Limit(tokens, truncation))


def texts(found):
    """The tokens of each pair that is kept."""
    return [
        (found.answers[chosen], found.answers[rejected]) for group in found.groups for chosen, rejected, *_ in group
    ]


def test_a_pair_of_exactly_the_limit_is_left_as_it_is(words, prompt):
    for truncation in ("right", "left", "drop"):
        found = limited(words, len(prompt) + 5, truncation)
        assert (texts(found), found.asked) == (PAIRS, [prompt])
        assert (found.truncated, found.dropped, found.kept) == (0, 0, [True] * 3)


def test_drop_leaves_out_what_is_longer(words, prompt):
    found = limited(words, len(prompt) + 3, "drop")
    assert texts(found) == PAIRS[:2]
    assert (found.truncated, found.dropped, found.kept) == (0, 1, [True, True, False])


def test_right_cuts_answers_and_leaves_out_those_that_are_equal_then(words, prompt):
    found = limited(words, len(prompt) + 2, "right")
    assert texts(found) == [PAIRS[0], ([20, 21], [30, 31])], "of the third pair nothing is left that differs"
    assert (found.truncated, found.dropped, found.kept) == (1, 1, [True, True, False])
    assert found.asked == [prompt]


def test_left_cuts_the_prompt_and_keeps_all_answers_whole(words, prompt):
    found = limited(words, 6, "left")
    assert (texts(found), found.asked) == (PAIRS, [prompt[-1:]]), "the longest answer leaves room for one token"
    assert (found.truncated, found.dropped) == (3, 0)
    found = limited(words, 5, "left")
    assert (texts(found), found.asked) == (PAIRS[:2], [prompt[-2:]]), "five tokens leave no room for a prompt"
    assert (found.truncated, found.dropped, found.kept) == (2, 1, [True, True, False])


@pytest.mark.parametrize("truncation", ["right", "left", "drop"])
def test_where_nothing_is_left_it_is_one_line(words, truncation):
    with pytest.raises(DataError, match=r"^no pair is left: all 3 have more tokens than max_length = 2$"):
        limited(words, 2, truncation)
