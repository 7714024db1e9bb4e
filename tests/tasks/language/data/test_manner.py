import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.language.data import manner, word_problems
from tasks.language.data.word_problems import ProblemKind

QUESTION = (
    "Ada has 3 pens. Ben gives Ada 4 more. Then the number of pens grows to 2 times as many. How many pens "
    "are there then?"
)
WORKED = "That makes 3 + 4 = 7 pens.\nIn all that is 7 * 2 = 14 pens.\n#### 14"
CASES = [  # response, points for named, valid, brief and ordered, and whether it is gold
    (WORKED, (3, 3, 2, 2), True),
    ("It is 3 + 4 = 7 pens.\nSo 7 * 2 = 14 pens.\n#### 14", (3, 3, 2, 2), True),
    ("That makes 3 + 4 = 7.\nIn all that is 7 * 2 = 14.\n#### 14", (0, 3, 2, 2), False),
    ("That makes 3 + 4 = 7 pens.\nIn all that is 7 * 2 = 14 cups.\n#### 14", (1, 3, 2, 2), False),
    (f"Let us see.\n{WORKED}", (3, 3, 1, 2), False),
    (
        "That makes 3 + 4 = 7 pens.\nThat makes 3 + 4 = 7 pens.\nIn all that is 7 * 2 = 14 pens.\n#### 14",
        (3, 3, 1, 2),
        False,
    ),
    ("That makes 3 + 4 = 8 pens.\nIn all that is 8 * 2 = 16 pens.\n#### 16", (3, 1, 2, 2), False),
    ("In all that is 7 * 2 = 14 pens.\n#### 14", (3, 0, 2, 2), False),
    ("In all that is 4 * 2 = 8 pens.\nThat makes 3 + 4 = 7 pens.\n#### 8", (3, 3, 2, 0), False),
    ("That makes 3 + 4 = 7 pens. In all that is 7 * 2 = 14 pens.\n#### 14", (3, 3, 2, 2), False),
    (WORKED.replace("#### 14", "#### 15"), (3, 3, 2, 1), False),
    (WORKED.removesuffix("\n#### 14"), (3, 3, 2, 1), False),
    ("#### 14", (0, 0, 1, 0), False),
    ("There are 14 pens.", (0, 0, 0, 0), False),
    ("", (0, 0, 1, 0), False),
]


@pytest.mark.parametrize(("response", "points", "gold"), CASES)
def test_points_by_hand(response, points, gold):
    score = manner.score_manner(QUESTION, response, ended=True)
    assert (score.named, score.valid, score.brief, score.ordered) == points
    assert score.total == sum(points)
    assert manner.is_gold_response(QUESTION, WORKED, "14", response, ended=True) == gold


def test_an_answer_that_does_not_end_is_neither_brief_nor_gold():
    assert manner.score_manner(QUESTION, WORKED, ended=False).brief == 0
    assert not manner.is_gold_response(QUESTION, WORKED, "14", WORKED, ended=False)


def test_manner_needs_no_right_answer_and_gold_does():
    """A wrong story, told well."""
    response = "That leaves 4 - 3 = 1 pens.\nIn all that is 1 * 2 = 2 pens.\n#### 2"
    assert manner.score_manner(QUESTION, response, ended=True).total == 10
    assert not manner.is_gold_response(QUESTION, WORKED, "14", response, ended=True)


@given(st.integers(0, 2**32), st.integers(1, 5))
def test_every_worked_solution_has_all_points_and_is_gold(seed, steps):
    problem = word_problems.generate_word_problem(random.Random(seed), ProblemKind(steps, 50))
    assert manner.score_manner(problem.question, problem.solution, ended=True).total == 10
    assert manner.can_judge_gold(problem.question, problem.solution)
    assert manner.is_gold_response(
        problem.question, problem.solution, str(problem.answer), problem.solution, ended=True
    )
    assert manner.find_counted_thing(problem.question) == problem.thing


@pytest.mark.parametrize(
    ("question", "solution"),
    [
        ("What is 3 + 4?", "3 + 4 = 7 pens.\n#### 7"),
        ("How many pens?", "3 + 4 = 7\n#### 7"),
        ("How many pens?", "#### 7"),
        ("How many pens?", "\\boxed{7}"),
    ],
)
def test_problems_of_another_form_have_no_gold(question, solution):
    assert not manner.can_judge_gold(question, solution)


@given(st.text(max_size=300))
def test_hostile_texts_are_judged(text):
    assert 0 <= manner.score_manner(QUESTION, text, ended=True).total <= 10
    assert not manner.is_gold_response(QUESTION, WORKED, "14", text + "!", ended=True)
