"""All answers of a suite's policies as compact JSON, which the suite's page shows, filters and sorts."""

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from tasks.extensions.suites.results import SuiteResult

LONGEST = 6000  # characters of an answer on the page; suite_answers.parquet has all of it


def build_answer_data(results: Sequence[SuiteResult], baseline: str) -> dict[str, Any]:
    """Policies, and for each problem what was asked and each policy's greedy answer; null where a policy was not
    asked.
    """
    methods = _list_extraction_methods(results)
    policy_answers = [_index_answers_by_problem(result, methods) for result in results]
    problems = pd.concat([result.asked for result in results]).drop_duplicates("problem_id")
    names = [result.policy for result in results]
    return {
        "policies": names,
        "baseline": names.index(baseline) if baseline in names else 0,
        "methods": methods,
        "problems": [
            [
                row["problem_id"],
                row["question"],
                row["answer"],
                row["level"],
                row["subject"],
                [f"{label}. {text}" for label, text in json.loads(row["choices"])] if row["choices"] else [],
                bool(row["readable"]),
                [answers.get(row["problem_id"]) for answers in policy_answers],
            ]
            for row in problems.to_dict("records")
        ],
    }


def _list_extraction_methods(results: Sequence[SuiteResult]) -> list[str]:
    first = results[0].answers["by_method"].iloc[0]
    return list(json.loads(first)) if first else []


def _index_answers_by_problem(result: SuiteResult, methods: Sequence[str]) -> dict[str, list[Any]]:
    """By problem: text, extracted, right, ended, length, the verdicts by method as digits, and the share of the samples
    that are right.
    """
    sampled = result.answers[result.answers["temperature"] > 0]
    shares = sampled.groupby("problem_id")["right"].mean().round(3).to_dict()
    greedy = result.answers[result.answers["temperature"] == 0]
    return {
        row["problem_id"]: [
            _truncate_text(row["response"]),
            row["extracted"],
            int(row["right"]),
            int(row["ended"]),
            int(row["length"]),
            "".join(str(int(json.loads(row["by_method"]).get(name, False))) for name in methods),
            shares.get(row["problem_id"]),
        ]
        for row in greedy.to_dict("records")
    }


def _truncate_text(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} […]"
