"""Which problems stand side by side, and what is said of each answer."""

import pandas as pd

from tasks.language.configs.report import ReportConfig
from tasks.language.reporting.side_by_side import build_side_by_side_data

CONFIG = ReportConfig(
    seed=0,
    policies=["sft", "dpo"],
    baseline="sft",
    controls=[],
    margin=3.0,
    best_by="strict_validation",
    samples=1,
    bootstrap=2,
)
ASKED = pd.DataFrame({"problem_id": ["a", "b", "c"], "question": "How many?", "solution": "#### 1"})


def answers(*right):
    return pd.DataFrame(
        {"problem_id": ["a", "b", "c"], "temperature": 0.0, "response": "#### 1", "ended": True, "strict": right}
    )


def test_every_problem_has_each_policys_answer_and_verdict():
    found = build_side_by_side_data(
        {"sft": answers(True, False, True), "dpo": answers(True, True, True)}, ASKED, CONFIG
    )
    assert (found["policies"], found["baseline"], found["all"]) == (["sft", "dpo"], "sft", 3)
    assert [problem["id"] for problem in found["problems"]] == ["a", "b", "c"]
    assert found["problems"][1]["answers"] == [["#### 1", False, True, None], ["#### 1", True, True, None]]


def test_problems_that_changed_come_first_where_there_is_no_room_for_all():
    both = {"sft": answers(True, False, True), "dpo": answers(True, True, False)}
    found = build_side_by_side_data(both, ASKED, CONFIG, room=300)
    assert [problem["id"] for problem in found["problems"]] == ["b", "c"]
    assert found["all"] == 3
