from fractions import Fraction

import pytest

from tasks.language.rewards.equations import parse_equations
from tasks.language.rewards.worked_steps import judge_worked_steps, parse_reference_steps

QUESTION = "There are 20 pens in 5 boxes. 3 boxes are sold, and a pen costs 7. How much was paid?"
SOLUTION = "20 / 5 = 4\n4 * 3 = 12\n12 * 7 = 84\n#### 84"


def work(response, question=QUESTION, solution=SOLUTION, answer="84"):
    return judge_worked_steps(question, solution, answer, parse_equations(response))


def test_leaves_are_what_no_earlier_step_gave():
    known = parse_reference_steps("1 + 2 = 3\n3 * 7 = 21\n5 + 1 = 6\n4 / 3 = 2")
    assert [step.text for step in known.steps] == ["1 + 2 = 3", "3 * 7 = 21", "5 + 1 = 6"]  # the last does not hold
    assert known.leaves == {1, 2, 7, 5}
    assert known.shapes[1] == (("*",), (None, Fraction(7)))


@pytest.mark.parametrize(
    ("response", "right", "credit"),
    [
        (SOLUTION, 1, 1),
        ("20 / 5 * 3 * 7 = 84", 1, 1),
        ("20 / 5 = 4\n4 * 3 = 12", Fraction(2, 3), Fraction(2, 3)),
        ("20 / 5 = 4\n4 * 3 = 13\n13 * 7 = 91", Fraction(1, 3), Fraction(2, 3)),  # a slip, carried on
        ("20 / 5 = 5\n5 * 3 = 15\n15 * 7 = 105", 0, Fraction(1, 2)),
        ("5 / 20 = 4\n9 * 9 = 81", 0, 0),  # the order of a division matters
        ("3 * 20 = 60\n60 / 5 = 12", Fraction(1, 3), Fraction(1, 3)),  # its own way to 12, no further
        ("20 / 5 = 4\n20 / 5 = 5\n20 / 5 = 6\n20 / 5 = 7", Fraction(1, 4), Fraction(1, 4)),  # guessing
        ("7 + 1 = 8", 0, 0),
        ("", 0, 0),
    ],
)
def test_shares(response, right, credit):
    found = work(response)
    assert (found.right, found.credit) == (right, credit)


def test_factors_and_summands_may_change_places():
    sums = {"question": "2 and 3?", "solution": "2 + 3 = 5", "answer": "5"}
    assert work("3 + 2 = 6", **sums).credit == Fraction(1, 2)
    assert work("3 + 2 = 5", **sums).credit == 1
    assert work("3 - 2 = 6", **sums).credit == 0


def test_the_answer_from_other_numbers_is_not_its_own_way():
    found = work("12 * 7 = 84")
    assert (found.right, found.reached) == (0, frozenset())
    assert work("12 * 7 = 84", question="12 is known here too").right == Fraction(1, 3)  # it skips what led to 12


def test_a_step_that_is_taken_again_neither_pays_nor_costs():
    assert work("20 / 5 = 4\n20 / 5 = 4\n4 * 3 = 12").right == Fraction(2, 3)
    assert work("7 + 1 = 8\n7 + 1 = 8\n20 / 5 = 4\n4 * 3 = 12").right == Fraction(2, 3)


def test_a_step_taken_again_counts_where_its_numbers_are_known():
    """The answer is given first and derived later: at its second place the step follows from known numbers."""
    question = {"question": "2 and 3, and 4 times as much?", "solution": "2 + 3 = 5\n5 * 4 = 20", "answer": "20"}
    found = work("5 * 4 = 20\n2 + 3 = 5\n5 * 4 = 20", **question)
    assert (found.right, found.reached) == (1, {5, 20})
    assert work("5 * 4 = 20\n2 + 3 = 5", **question).right == Fraction(1, 2)
