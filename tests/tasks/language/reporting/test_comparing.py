"""Win rates by hand, and what a table of policies is held against."""

import pandas as pd
import pytest

from tasks.common import tables
from tasks.language.reporting.comparing import (
    compute_changes_to_baseline,
    compute_other_kind_changes,
    compute_win_rates,
    count_distinct_prompts,
)
from tasks.language.tables.evaluation import Generations


def answers(greedy, *sampled):
    """Each column is a problem, with the rubric points of its greedy and its sampled answers."""
    rows = [
        {"problem_id": f"{problem}", "temperature": float(sample > 0), "sample": max(0, sample - 1), "rubric": points}
        for sample, scores in enumerate([greedy, *sampled])
        for problem, points in enumerate(scores)
    ]
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


def test_win_rates_by_hand():
    base = answers([5, 5, 5], [0, 9, 2], [9, 9, 2])
    other = answers([5, 6, 4], [9, 9, 9], [8, 9, 0])
    found = compute_win_rates({"sft": base, "dpo": other}, {"sft": 1.0, "dpo": 1.0}, "sft", ["t1.0"])
    assert list(found) == ["dpo"]
    assert found["dpo"]["win_rate_greedy"].mean == pytest.approx((0.5 + 1 + 0) / 3)
    # Problem 0: 9 beats 0 and ties with 9, 8 beats 0 and loses to 9 (paired by place it would be 1/2); problem 1: ties;
    # problem 2: 9 wins twice, 0 loses twice.
    assert found["dpo"]["win_rate_sampled_t1.0"].mean == pytest.approx((2.5 / 4 + 1 / 2 + 1 / 2) / 3)
    # Ties: problem 0 of the greedy ones; of the samples one pair of problem 0 and all of problem 1.
    assert found["dpo"]["tie_rate_greedy"].mean == pytest.approx(1 / 3)
    assert found["dpo"]["tie_rate_sampled_t1.0"].mean == pytest.approx((1 / 4 + 1 + 0) / 3)


def measures(right, gold):
    return pd.DataFrame(
        {"strict_greedy": right, "gold_greedy": gold}, index=[f"p{n}" for n in range(len(right))], dtype=float
    )


def test_the_parts_of_a_change_of_gold_are_tested_as_the_change_is():
    """Of 40 problems that both have right, 20 become gold; of the others nothing changes."""
    sft, dpo = measures([1] * 40 + [0] * 20, [0] * 60), measures([1] * 40 + [0] * 20, [1] * 20 + [0] * 40)
    found = compute_changes_to_baseline({"sft": sft, "dpo": dpo}, "sft")["dpo"]
    sides = {metric: change.interval_sign for metric, change in found.items()}
    assert sides == {"strict_greedy": 0, "gold_greedy": 1, "gold_by_manner": 1, "gold_by_correctness": 0}
    assert found["gold_by_manner"].estimate.mean == pytest.approx(1 / 3)


def test_right_answers_to_problems_of_other_kinds_are_compared_problem_by_problem(tmp_path):
    """Of 40 longer problems dpo loses 20, of 40 with larger numbers it gains one: only the first is apart from 0."""
    right = {"sft": [1] * 40 + [0] * 40, "dpo": [1] * 20 + [0] * 59 + [1]}
    for name, values in right.items():
        ids = [f"{kind}-{n}" for kind in ("longer", "larger") for n in range(40)]
        rows = pd.DataFrame({"problem_id": ids, "strict": [*map(bool, values)]})
        rows = rows.assign(temperature=0.0, sample=0, response="", length=1, ended=True, steps=False)
        (tmp_path / name).mkdir()
        tables.write_table(
            Generations, rows.sample(frac=1, random_state=len(name)), tmp_path / name / "other_kinds.parquet"
        )
    folders = {name: tmp_path / name for name in right}
    found = compute_other_kind_changes(folders, "sft")["dpo"]
    assert {metric: (change.interval_sign, change.estimate.mean) for metric, change in found.items()} == {
        "strict_greedy_longer": (-1, pytest.approx(-0.5)),
        "strict_greedy_larger": (0, pytest.approx(1 / 40)),
    }
    assert {change.chance for change in found.values()} == {0.05}
    assert found["strict_greedy_larger"].p > 0.05
    assert compute_other_kind_changes({**folders, "ppo": tmp_path / "ppo"}, "sft") == {}


def test_equal_prompts_are_no_more_evidence_than_one(tmp_path):
    """Forty problems, of which each is there twice: 20 prompts are too few for an interval."""
    asked = pd.DataFrame(
        {
            "problem_id": [f"p{n}" for n in range(40)],
            "question": [f"{n % 20} + 1?" for n in range(40)],
            "solution": "",
            "answer": "1",
            "steps": 1,
        }
    )
    asked.to_parquet(tmp_path / "asked.parquet", index=False)
    assert count_distinct_prompts(tmp_path) == 20
