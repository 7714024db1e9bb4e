"""Labels of steps, by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.language.rewards.step_labels import compute_step_labels
from tasks.language.tables.solutions import split_steps

QUESTION = "There are 20 pens in 5 boxes. 3 boxes are sold, and a pen costs 7. How much was paid?"
SOLUTION = "20 / 5 = 4\n4 * 3 = 12\n12 * 7 = 84\n#### 84"


def labels(response, question=QUESTION, solution=SOLUTION, answer="84"):
    return compute_step_labels(question, solution, answer, response)


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (SOLUTION, [1, 1, 1, 1]),
        ("20 / 5 * 3 * 7 = 84\n#### 84", [1, 1]),  # in one step
        ("3 * 20 = 60\n60 / 5 = 12\n12 * 7 = 84\n#### 84", [1, 1, 1, 1]),  # its own way
        ("First the boxes.\n\n20 / 5 = 4 pens a box.\n", [0, 1]),  # words; blank lines are no steps
        ("20 / 5 = 5", [-1]),  # does not hold
        ("12 * 7 = 84", [-1]),  # 12 is not known yet
        ("20 / 5 = 4\n4 * 3 = 13\n13 * 7 = 91\n#### 91", [1, -1, -1, -1]),  # a slip, and what is built on it
        ("20 / 5 = 4\n4 * 3 = 13\n4 * 3 = 12\n12 * 7 = 84\n#### 84", [1, -1, 1, 1, 1]),  # a slip, mended
        ("20 / 5 = 4\n4 * 3 = 12\n12 * 6 = 84\n#### 84", [1, 1, -1, -1]),  # the answer, by a wrong step alone
        ("20 / 5 = 4\n20 / 5 = 4\n4 * 3 = 12", [1, 0, 1]),  # a step taken again
        ("20 / 5 = 5\n20 / 5 = 5", [-1, -1]),  # a wrong one stays wrong
        ("20 + 7 = 27\n20 / 5 = 4", [0, 1]),  # holds and leads nowhere
        ("20 / 4 = 3\n20 - 3 = 17", [-1, -1]),  # holds, and its 3 is in the question, but comes from a wrong step
        ("20 / 4 = 3\n20 / 5 = 4\n4 * 3 = 12", [-1, 1, 1]),  # the 3 of the question, which leads on
        ("20 / 5 = 4; 4 * 3 = 13", [-1]),  # a line is as bad as its worst equation
        ("20 / 5 = 4; 20 + 7 = 27", [1]),  # else as good as its best
        ("#### 84", [1]),  # the answer alone
        ("#### 85", [-1]),
        ("#### 84\n#### 84", [1, 0]),
        ("#### 12\n#### 84", [-1, 1]),
        ("So it is \\boxed{84}.", [1]),
        ("So it is \\boxed{12}.", [-1]),
        ("#### \\frac{168}{2}", [0]),  # only algebra could tell
        ("It was 12.", [0]),  # words mark no answer
        ("5 / 0 = 4", [-1]),
        ("", []),
        ("\n \n", []),
    ],
)
def test_by_hand(response, expected):
    assert labels(response) == expected


def test_letters_and_unknown_answers():
    assert compute_step_labels("A) 3 B) 4", "It is B.", "B", "#### B") == [1]
    assert compute_step_labels("A) 3 B) 4", "It is B.", "B", "#### A") == [-1]
    assert compute_step_labels("Why?", "", "", "Because.\n#### 3") == [0, 0]


NUMBERS = st.integers(0, 30)
LINES = st.one_of(
    st.sampled_from([*SOLUTION.split("\n"), "So:", "", "  ", "#### 12", "20 / 5 = 4; 4 * 3 = 13"]),
    st.builds("{} {} {} = {}".format, NUMBERS, st.sampled_from("+-*/"), NUMBERS, NUMBERS),
    st.text(max_size=20).map(lambda text: text.replace("\n", " ")),
)


@settings(max_examples=40)
@given(st.lists(LINES, max_size=8))
def test_each_line_has_a_label_that_no_later_line_makes_worse(written):
    """What comes later may show that a step leads on."""
    found = labels("\n".join(written))
    assert len(found) == len(split_steps("\n".join(written)))
    assert set(found) <= {-1, 0, 1}
    for count in range(len(written)):
        before = labels("\n".join(written[:count]))
        assert all(early <= late for early, late in zip(before, found, strict=False))
