import math

import pandas as pd
import pytest

from tasks.language.reporting import judging
from tasks.language.rewards.verifier import Verifier


@pytest.mark.parametrize(
    ("gold", "right", "marked"),
    [
        ("\\frac{1}{2}", "So it is \\boxed{\\frac{2}{4}}", "It is one half, so to say 1/3"),
        ("B", "The best is\n#### B", "I would say (B)"),
        ("7", "3 + 4 = 7\n#### 7", "The answer is 7"),
    ],
)
def test_strict_asks_for_the_mark_and_lenient_for_the_answer(gold, right, marked):
    with Verifier() as verifier:
        found = judging.judge_answers([gold] * 2, [right, marked], verifier)
    assert found["strict"] == [True, False]
    assert found["lenient"][0]


class Told:
    """A verifier that says of four answers what it is made for: right, wrong, took too long, and a reference that
    nobody can read.
    """

    def __call__(self, golds, texts):
        return [1.0, 0.0, 0.0, math.nan]

    def timed_out(self, golds, texts):
        return [False, False, True, False]


def test_why_an_answer_is_not_right_is_told_apart():
    assert judging.judge_answers(["\\frac{1}{2}"] * 4, ["\\boxed{5}"] * 4, Told()) == {
        "strict": [True, False, False, False],
        "lenient": [True, False, False, False],
        "timed_out": [False, False, True, False],
        "unjudged": [False, False, False, True],
    }


@pytest.mark.parametrize(
    ("answer", "solution", "applies"),
    [
        ("7", "3 + 4 = 7\n#### 7", True),
        ("\\frac12", "#### \\frac12", False),
        ("7", "It is 7.", False),
        ("", "#### 7", False),
    ],
)
def test_the_rubric_is_for_gsm8ks_form(answer, solution, applies):
    rows = [{"answer": "3", "solution": "1 + 2 = 3\n#### 3"}, {"answer": answer, "solution": solution}]
    assert judging.can_apply_rubric(pd.DataFrame(rows)) == applies


def problems(*rows):
    return pd.DataFrame([{"question": question, "solution": solution, "answer": "7"} for question, solution in rows])


STORY = ("Ada has 3 pens. Ben gives Ada 4 more. How many pens does Ada have now?", "That makes 3 + 4 = 7 pens.\n#### 7")


def test_manner_and_gold_are_judged_where_all_problems_count_a_thing():
    assert judging.can_judge_manner(problems(STORY, STORY))
    assert not judging.can_judge_manner(problems(STORY, ("What is 3 + 4?", "3 + 4 = 7\n#### 7")))
    [row] = problems(STORY).to_dict("records")
    assert judging.score_manner_and_gold(row, STORY[1], ended=True) == {"manner": 1.0, "gold": True}
    assert judging.score_manner_and_gold(row, "So 3 + 4 = 7.\n#### 7", ended=True) == {"manner": 0.7, "gold": False}
