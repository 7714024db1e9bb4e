"""What was measured of one policy on one suite, read back for pages, and two policies held against each other."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tasks.common import paired_intervals, tables
from tasks.common.errors import DataError
from tasks.common.estimates import Changes, Estimate
from tasks.extensions.suites.tables import Answers, SuiteQuestions
from tasks.language.reporting.differences import read_measures


@dataclass(frozen=True)
class SuiteResult:
    """The tables of one policy on one suite; `values` has a row for each problem by its id, a column for each
    metric.
    """

    policy: str
    suite: str
    asked: pd.DataFrame
    answers: pd.DataFrame
    values: pd.DataFrame
    metrics: dict[str, Any]  # benchmark.json

    def estimate(self, metric: str) -> Estimate:
        """A metric's mean and interval."""
        return Estimate(**self.metrics[metric])


def load_suite_result(folder: Path) -> SuiteResult:
    """The files that evaluating.py wrote to `folder`; DataError with one line where they are not there."""
    if not (folder / "benchmark.json").is_file():
        raise DataError(f"{folder}: no benchmark.json; expected a folder of the stage benchmarks")
    metrics = json.loads((folder / "benchmark.json").read_text())
    return SuiteResult(
        metrics["policy"],
        metrics["suite"],
        tables.read_table(SuiteQuestions, folder / "suite_problems.parquet"),
        tables.read_table(Answers, folder / "suite_answers.parquet"),
        read_measures(folder / "measures.parquet"),
        metrics,
    )


def group_results_by_suite(results: Sequence[SuiteResult]) -> dict[str, list[SuiteResult]]:
    """The results of each suite, suites and policies in the order given; DataError where a policy stands twice in
    one.
    """
    grouped: dict[str, list[SuiteResult]] = {}
    for result in results:
        others = grouped.setdefault(result.suite, [])
        if result.policy in [other.policy for other in others]:
            raise DataError(
                f"benchmark pages: {result.policy} stands twice for {result.suite}; expected each policy once"
            )
        others.append(result)
    return grouped


def estimate_paired_difference(
    ours: SuiteResult, baseline: SuiteResult, metric: str
) -> tuple[Estimate, Changes | None] | None:
    """Ours minus the baseline's over the problems that both were asked, as `posttrain compare` has it; None without
    such problems.

    With the difference its 95 % interval, and where every problem is right or wrong, how many were gained and lost.
    """
    common = ours.values.index.intersection(baseline.values.index)
    if common.empty or metric not in ours.values or metric not in baseline.values:
        return None
    mine = ours.values.loc[common, metric]
    theirs = baseline.values.loc[common, metric]
    if (exact := paired_intervals.compare_binary_outcomes(mine, theirs)) is not None:
        return exact
    [drawn] = paired_intervals.bootstrap_mean_differences((mine - theirs).to_frame())
    return drawn, None
