"""Where the steps of a response end in its tokens."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.common import models
from tasks.language.data import chat
from tasks.language.steps.cutting import locate_step_ends
from tasks.language.tables.solutions import split_steps


@pytest.fixture(scope="module")
def words(made):
    return models.load_tokenizer(made / "pretrained")


def steps(words, text, ended=True):
    """The text of each step by its tokens, and where the steps end."""
    tokens = chat.encode_response(words, text, ended)
    [ends] = locate_step_ends(words, [tokens])
    starts = [0, *(end + 1 for end in ends)]
    pieces = [words.decode(tokens[a : b + 1], skip_special_tokens=True) for a, b in zip(starts, ends, strict=False)]
    return tokens, ends, pieces


def test_a_step_ends_with_its_line_and_the_last_one_with_the_response(words):
    tokens, ends, pieces = steps(words, "3 + 4 = 7\n\n7 - 2 = 5\n#### 5\n")
    assert pieces == ["3 + 4 = 7\n", "\n7 - 2 = 5\n", "#### 5\n"]
    assert ends[-1] == len(tokens) - 1
    assert tokens[-1] == words.eos_token_id, "which belongs to the last step"
    assert steps(words, "3 + 4 = 7\n7 -", ended=False)[2] == ["3 + 4 = 7\n", "7 -"]


LINES = st.lists(st.sampled_from(["", " ", "3 + 4 = 7", "So:", "#### 12", "\u00e9\u4e2d"]), min_size=1, max_size=6)


@given(LINES, st.booleans())
@settings(max_examples=25)
def test_the_tokens_have_the_steps_of_the_text(words, lines, ended):
    text = "\n".join(lines)
    if text.strip():
        assert tuple(piece.strip() for piece in steps(words, text, ended)[2]) == tuple(
            step.strip() for step in split_steps(text)
        )
