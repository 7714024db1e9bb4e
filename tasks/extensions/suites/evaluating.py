"""One policy on one suite: read, answer, score, measure, and write what the pages and comparisons read."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from tasks.algorithms.language.causal_lm import PretrainedCausalLM
from tasks.common import tables, tracking
from tasks.common.tokenizers import Tokenizer
from tasks.extensions.suites import answering, measuring, reading, scoring
from tasks.extensions.suites.answering import AnswerSampling
from tasks.extensions.suites.suite import SuiteProblem
from tasks.extensions.suites.tables import Answers, SuiteQuestions
from tasks.language.rewards.verifier import Verifier
from tasks.language.tables.evaluation import Measures

SHOWN = 50  # answers in MLflow
METRICS = {
    "asked": "The number of problems that were asked.",
    "left_out": "The number of problems that were left out, since prompt, max_new_tokens and the model's positions "
    "do not fit.",
    "unreadable": "The number of problems whose own reference answer the suite's scoring cannot read or does not "
    "hold to be right; no answer to them counts as right.",
    **{f"{name}/ESTIMATE": text for name, text in measuring.METRICS.items()},
}


def evaluate_on_suite(
    name: str,
    policy: str,
    problems: Sequence[SuiteProblem],
    examples: Sequence[SuiteProblem],
    model: PretrainedCausalLM,
    tokenizer: Tokenizer,
    sampling: AnswerSampling,
    pass_at: Sequence[int],
    out: Path,
) -> dict[str, Any]:
    """The METRICS of the answers of the model, which pages call `policy`; writes suite_problems.parquet,
    suite_answers.parquet, measures.parquet and benchmark.json to `out`.
    """
    suite = reading.get_suite(name)
    kept = answering.filter_fitting_problems(suite, model, tokenizer, problems, examples, sampling.max_new_tokens)
    with Verifier() as verifier:
        readable = scoring.judge_reference_answers(suite, kept, verifier)
        answers = answering.answer_and_score_problems(suite, model, tokenizer, kept, examples, sampling, verifier)
    values = measuring.compute_problem_metrics(answers, pass_at)
    long = values.rename_axis("problem_id").reset_index().melt("problem_id", var_name="metric")
    tables.write_table(SuiteQuestions, build_problem_table(kept, readable), out / "suite_problems.parquet")
    tables.write_table(Answers, answers, out / "suite_answers.parquet")
    tables.write_table(Measures, long, out / "measures.parquet")
    tracking.record_table(answers.head(SHOWN), f"answers-{name}.json")
    metrics: dict[str, Any] = {
        "asked": len(kept),
        "left_out": len(problems) - len(kept),
        "unreadable": readable.count(False),
        **{metric: asdict(estimate) for metric, estimate in measuring.estimate_metric_means(values).items()},
    }
    described = {
        "policy": policy,
        "suite": name,
        "title": suite.title,
        "peer": suite.peer,
        "shots": len(examples),
        **metrics,
    }
    (out / "benchmark.json").write_text(json.dumps(described, indent=1) + "\n")
    return metrics


def build_problem_table(problems: Sequence[SuiteProblem], readable: Sequence[bool]) -> pd.DataFrame:
    """The problems as a table (schema Asked)."""
    rows = [
        {
            "problem_id": problem.problem_id,
            "question": problem.question,
            "answer": problem.answer,
            "level": problem.level,
            "subject": problem.subject,
            "choices": json.dumps(problem.choices) if problem.choices else "",
            "readable": good,
        }
        for problem, good in zip(problems, readable, strict=True)
    ]
    return pd.DataFrame(rows)


def compute_headline_columns(metrics_by_suite: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, float]]:
    """A table's columns: for each suite its headline metric and that metric's mean, then their average over the
    suites.
    """
    named = {
        name: measuring.select_headline_metric(reading.get_suite(name), metrics)
        for name, metrics in metrics_by_suite.items()
    }
    cells = {name: (metric, float(metrics_by_suite[name][metric]["mean"])) for name, metric in named.items()}
    if len(cells) > 1:
        cells["average"] = ("of the columns", sum(value for _, value in cells.values()) / len(cells))
    return cells
