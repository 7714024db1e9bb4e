import json
from pathlib import Path

import pytest

from tasks.language.rewards.rubric import score_response
from tests import repository

QUESTION = "Yara has 14 marbles. Yara finds another 7. Then the number grows to 2 times as many. How many are there?"
SOLUTION = "That makes 14 + 7 = 21 marbles.\nTogether these are 21 * 2 = 42 marbles.\n#### 42"
TRAIN = "If a train travels 120 km in 2 hours, what is its average speed?"
TRAIN_SOLUTION = "The train covers 120 / 2 = <<120/2=60>>60 km each hour.\n#### 60"


def points(response, ended=True):
    found = score_response(QUESTION, SOLUTION, "42", response, ended)
    return found.correctness, found.reasoning, found.clarity


def test_the_lectures_example():
    response = "The average speed is 60 km/h because speed equals distance divided by time."
    found = score_response(TRAIN, TRAIN_SOLUTION, "60", response, True)
    assert (found.correctness, found.reasoning, found.clarity, found.total) == (5, 3, 2, 10)
    assert found.correctness_reason == "final answer 60 is right"
    assert found.reasoning_reason == "names the right operation"
    assert found.clarity_reason == "states its answer; concise"


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (SOLUTION, (5, 3, 2)),
        ("(14 + 7) * 2 = 42\n#### 42", (5, 3, 2)),  # its own way, from the same numbers
        ("14 * 2 = 28\n7 * 2 = 14\n28 + 14 = 42\n#### 42", (5, 3, 2)),
        ("14 + 7 = 21\n21 * 2 = 42\n#### 41", (3, 3, 1)),  # derived, then given otherwise
        ("14 + 7 = 21\n21 * 2 = 44\n#### 44", (2, 2, 2)),  # a slip in the second step, which is set up rightly
        ("14 + 7 = 22\n22 * 2 = 44\n#### 44", (0, 1, 2)),  # a slip in the first, carried on
        ("14 + 7 = 22\n#### 22", (0, 0, 2)),
        ("14 * 7 = 98\n98 * 2 = 196\n#### 196", (0, 0, 2)),  # holds, but leads elsewhere
        ("40 + 2 = 42\n#### 42", (5, 0, 2)),  # numbers from nowhere
        ("#### 42", (5, 0, 2)),
        ("", (0, 0, 0)),
    ],
)
def test_points(response, expected):
    assert points(response) == expected


def test_listing_numbers_does_not_pay():
    listed = "\n".join(f"14 + {n} = {14 + n}\n21 * {n} = {21 * n}" for n in range(1, 8)) + "\n#### 43"
    assert "14 + 7 = 21" in listed
    assert points(listed)[:2] <= (1, 0)
    assert points("1 2 3 20 21 40 41 42 43")[0] == 0


def test_needless_steps_cost():
    needless = "14 + 2 = 16\n7 + 2 = 9\n" + SOLUTION
    assert points(needless) == (5, 1, 2)


@pytest.mark.parametrize(
    ("response", "ended", "clarity", "reason"),
    [
        (SOLUTION, False, 1, "states its answer; does not end"),
        (SOLUTION.replace("####", "The answer is"), True, 1, "no plain answer; concise"),
        (SOLUTION.replace("#### 42", "The answer is 42."), True, 2, "states its answer; concise"),
        (SOLUTION + "\n#### 42", True, 0, "no plain answer; repeats itself"),
        (SOLUTION + "\nWell done", True, 1, "no plain answer; concise"),
        ("so it goes " * 30 + "\n" + SOLUTION, True, 1, "states its answer; rambles"),
        (SOLUTION.replace("#### 42", "#### 24"), True, 1, "answer is not the last step's; concise"),
        (
            SOLUTION.replace("42 marbles", "42 Eggs"),
            True,
            1,
            "states its answer; counts Eggs, which nobody asked about",
        ),
        (SOLUTION.replace("42 marbles", "42 marble"), True, 2, "states its answer; concise"),
        (SOLUTION.replace("21 marbles", "21 eggs"), True, 2, "states its answer; concise"),  # the last count is judged
    ],
)
def test_clarity(response, ended, clarity, reason):
    found = score_response(QUESTION, SOLUTION, "42", response, ended)
    assert (found.clarity, found.clarity_reason) == (clarity, reason)


def test_the_last_step_may_repeat_an_earlier_one():
    """Two boxes of three, four away, then two boxes of three again: the answer is that of the last step."""
    solution = "In all that is 2 * 3 = 6 plums.\nThere remain 6 - 4 = 2 plums.\nIn all that is 2 * 3 = 6 plums.\n#### 6"
    question = "There are 2 plums in each of 3 bags. 4 plums go, and what is left is tripled. How many are there?"
    assert (
        score_response(question, solution, "6", solution.replace("In all that is 2 * 3", "So 3 * 2", 1), True).total
        == 10
    )
    away = "There are 2 * 3 = 6 plums.\nThat leaves 6 - 4 = 2 plums.\n#### 6"
    assert (
        score_response(question, solution, "6", away, True).clarity_reason == "answer is not the last step's; concise"
    )


@pytest.mark.parametrize(
    ("response", "reasoning"),
    [
        ("It is 60, since 120 divided by 2 makes that.", 0),  # the last number is 2: a wrong answer
        ("Dividing gives 60.", 3),
        ("Adding, multiplying, subtracting and dividing gives 60.", 0),  # names everything
        ("Multiplying and dividing gives 60.", 1),
        ("It is 60.", 0),
        ("Dividing gives 50.", 0),
    ],
)
def test_reasoning_in_words(response, reasoning):
    assert score_response(TRAIN, TRAIN_SOLUTION, "60", response, True).reasoning == reasoning


def test_a_reference_without_steps_holds_nothing_against_a_right_answer():
    assert score_response("How many legs has a dog?", "Four.\n#### 4", "4", "2 + 2 = 4\n#### 4", True).total == 10


GSM8K = Path(__file__).parents[5] / "shared" / "data" / "gsm8k" / "test.jsonl"


@pytest.mark.skipif(not GSM8K.exists(), reason=repository.needs("data/gsm8k"))
def test_gsm8ks_own_solutions_earn_full_points():
    """GSM8K's solutions are written by people in many forms: all are correct, and 19 of 20 earn all ten points."""
    rows = [json.loads(line) for line in GSM8K.read_text().splitlines()]
    found = [
        score_response(
            row["question"], row["answer"], row["answer"].rpartition("#### ")[2].replace(",", ""), row["answer"], True
        )
        for row in rows
    ]
    assert all(one.correctness == 5 for one in found)
    assert sum(one.total == 10 for one in found) >= 0.95 * len(found)


@pytest.mark.parametrize("answer", ["", "B", r"\frac{1}{2}", "1 or 2", "1/2", "####", "-"])
@pytest.mark.parametrize("solution", ["", "By symmetry it is so.", "3 + 4 = 7\n#### 7"])
def test_a_reference_that_is_no_number_is_never_reached(answer, solution):
    """The rubric is one for numbers; other references earn nothing for correctness but for steps that the solution
    has.
    """
    worked = score_response("Ada has 3 pens and buys 4.", solution, answer, "3 + 4 = 7\n#### 7", True)
    assert worked.correctness == (2 if solution.endswith("7") else 0)
    assert score_response("?", solution, answer, answer, True).correctness == 0
