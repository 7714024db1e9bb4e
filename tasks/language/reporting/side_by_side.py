"""Greedy answers of all policies side by side, problem by problem: what each policy gained and lost against the
baseline.
"""

import json
from collections.abc import Iterator

import numpy as np
import pandas as pd

from tasks.common import tables
from tasks.common.tables import Record
from tasks.language.configs.report import ReportConfig
from tasks.language.reporting.comparing import Answers

ROOM = 900_000  # characters of problems and answers on the page; with more of them, the ones that changed come first


def draw_sample_problems(answers: Answers, problems: pd.DataFrame, config: ReportConfig) -> list[Record]:
    """Problems drawn by the seed from all that were evaluated, with each policy's greedy answer."""
    greedy = _select_greedy_answers(answers)
    rows = problems.set_index("problem_id")
    rows = rows.loc[sorted(greedy[config.policies[0]].index)]
    drawn = np.random.default_rng(config.seed).choice(len(rows), min(config.samples, len(rows)), replace=False)
    return [
        {
            "id": rows.index[index],
            "question": rows["question"].iloc[index],
            "solution": rows["solution"].iloc[index],
            "answers": [{"policy": name, **table.loc[rows.index[index]].to_dict()} for name, table in greedy.items()],
        }
        for index in drawn
    ]


def build_side_by_side_data(answers: Answers, problems: pd.DataFrame, config: ReportConfig, room: int = ROOM) -> Record:
    """The page's data: each problem with one answer a policy, `[text, right, ended, points]`, what was not measured as
    null.

    Where all problems take more than `room` characters, the ones that changed come first, and then those that the seed
    draws. They are shown in the order of the evaluation.
    """
    greedy = _select_greedy_answers(answers)
    rows = problems.set_index("problem_id")
    rows = rows.loc[[name for name in rows.index if name in greedy[config.baseline].index]]
    problem_entries = {str(name): _build_problem_entry(str(name), row, greedy) for name, row in rows.iterrows()}
    changed = [name for name in problem_entries if _has_changed_correctness(name, greedy, config.baseline)]
    others = [name for name in problem_entries if name not in {*changed}]
    order = [*changed, *np.random.default_rng(config.seed).permutation(others).tolist()]
    sizes = np.cumsum([len(json.dumps(problem_entries[name])) for name in order])
    kept = {name for name, size in zip(order, sizes, strict=True) if size <= room}
    return {
        "policies": list(answers),
        "baseline": config.baseline,
        "all": len(problem_entries),
        "problems": [problem for name, problem in problem_entries.items() if name in kept],
    }


def _select_greedy_answers(answers: Answers) -> dict[str, pd.DataFrame]:
    return {name: frame[frame["temperature"] == 0].set_index("problem_id") for name, frame in answers.items()}


def _build_problem_entry(name: str, row: pd.Series, greedy: Answers) -> Record:
    return {
        "id": name,
        "question": row["question"],
        "solution": row["solution"],
        "answers": [
            [*_iterate_answer_fields(*tables.list_records(table.loc[[name]]))] if name in table.index else None
            for table in greedy.values()
        ],
    }


def _iterate_answer_fields(row: Record) -> Iterator[str | bool | int | None]:
    yield str(row["response"])
    yield bool(row["strict"]) if "strict" in row else None
    yield bool(row["ended"])
    yield int(row["rubric"]) if "rubric" in row else None


def _has_changed_correctness(name: str, greedy: Answers, baseline: str) -> bool:
    """Whether some policy's answer is right where the baseline's is wrong, or the other way round."""
    graded = {policy: table for policy, table in greedy.items() if "strict" in table and name in table.index}
    right = {policy: bool(table["strict"].loc[name]) for policy, table in graded.items()}
    return baseline in right and len({*right.values()}) > 1
