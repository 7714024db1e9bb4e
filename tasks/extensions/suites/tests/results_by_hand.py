"""Results of policies on a suite, made by hand: no model, no file of a suite."""

import json
from dataclasses import asdict

import pandas as pd

from tasks.extensions.suites import measuring
from tasks.extensions.suites.results import SuiteResult

METHODS = ("qwen", "box")


def result(policy, right, suite="math500", samples=None, texts=None, levels="12"):
    """One answer to each problem, right or wrong; `samples` has a list of right ones for each problem."""
    rows = []
    for number, good in enumerate(right):
        text = texts[number] if texts else f"So {number if good else -1}."
        both = json.dumps({"qwen": bool(good), "box": False})
        own = {
            "problem_id": f"p{number}",
            "extracted": str(number if good else -1),
            "length": 5 + number,
            "ended": True,
        }
        rows.append({**own, "temperature": 0.0, "sample": 0, "response": text, "right": bool(good), "by_method": both})
        for sample, drawn in enumerate(samples[number] if samples else []):
            found = {**own, "extracted": str(number if drawn else -1 - sample)}
            rows.append(
                {**found, "temperature": 0.6, "sample": sample, "response": "", "right": bool(drawn), "by_method": ""}
            )
    answers = pd.DataFrame(rows)
    values = measuring.compute_problem_metrics(answers, [1, 2])
    asked = pd.DataFrame(
        {
            "problem_id": [f"p{number}" for number in range(len(right))],
            "question": [f"What is {number}?" for number in range(len(right))],
            "answer": [str(number) for number in range(len(right))],
            "level": [levels[number % len(levels)] for number in range(len(right))],
            "subject": "",
            "choices": "",
            "readable": True,
        }
    )
    metrics = {
        **{"policy": policy, "suite": suite, "title": "MATH-500", "peer": "Qwen2.5-Math", "shots": 0},
        **{"asked": len(right), "left_out": 0, "unreadable": 0},
        **{name: asdict(estimate) for name, estimate in measuring.estimate_metric_means(values).items()},
    }
    return SuiteResult(policy, suite, asked, answers, values, metrics)
