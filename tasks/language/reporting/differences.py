"""Policies held against a baseline problem by problem: what differs, how surely, and on how many problems.

One rule decides for a mark, for the side of an interval and for a p-value: the paired test of each policy, corrected by
Holm for the number of policies that are compared by the metric.
"""

from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass
from math import inf, isfinite
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd

from tasks.common import paired_intervals, tables
from tasks.common.estimates import CHANCE, Changes, Estimate
from tasks.language.tables.evaluation import Measures

# Of fewer problems no interval is shown and nothing is marked: a share of one half is then known to 34 points, and
# Student's interval misses its level where few of the differences are not 0.
FEWEST = 30


@dataclass(frozen=True)
class Difference:
    """A difference of means with its paired interval; `changes` where every problem is either right or wrong.

    `p` is corrected for the number of policies, None where nothing was tested; the interval misses the difference with
    the probability `chance`, so that it leaves 0 out exactly where p is below 5 %. Of too few problems it has no
    bounds.
    """

    estimate: Estimate
    changes: Changes | None
    p: float | None = None
    chance: float = CHANCE

    @property
    def interval_sign(self) -> int:
        """1 where the interval lies wholly above 0, -1 wholly below, 0 where it holds 0."""
        return (self.estimate.low > 0) - (self.estimate.high < 0)

    def is_within_margin(self, margin: float) -> bool:
        """Whether the interval lies within `margin` of 0: the two are as good as equal."""
        return -margin <= self.estimate.low and self.estimate.high <= margin

    def numbers(self) -> dict[str, float]:
        """The difference as numbers for a file of metrics; an interval without bounds and a p of nothing are left
        out.
        """
        counts = {"gained": self.changes.gained, "lost": self.changes.lost} if self.changes else {}
        return filter_finite_values({**asdict(self.estimate), **counts, **({} if self.p is None else {"p": self.p})})


def filter_finite_values(numbers: Mapping[str, float]) -> dict[str, float]:
    """The numbers without those that JSON has no word for: the bounds of an interval that has none."""
    return {name: value for name, value in numbers.items() if isfinite(value)}


def read_measures(path: Path) -> pd.DataFrame:
    """A policy's measures: one row for each problem by its id, one column for each metric."""
    return tables.read_table(Measures, path).pivot(index="problem_id", columns="metric", values="value")


Key = TypeVar("Key", bound=Hashable)
Sides = tuple[np.ndarray, np.ndarray]  # a policy's values and the other's, on the same problems: (P,) each


def compute_differences(
    ours: Mapping[str, pd.DataFrame], baseline: pd.DataFrame, fewest: int = FEWEST
) -> dict[str, dict[str, Difference]]:
    """Policy -> metric -> its difference, for each metric (column) that it shares with the baseline, over the problems
    (rows) of both.

    Of fewer problems than `fewest` nothing is tested. Raises ValueError if a policy shares no problem with the
    baseline.
    """
    by_metric: dict[str, dict[str, Sides]] = {}
    for policy, table in ours.items():
        problems = table.index.intersection(baseline.index)
        if problems.empty:
            raise ValueError("policies can be compared on the same problems only; these share none")
        for metric in table.columns.intersection(baseline.columns):
            sides = table.loc[problems, metric].to_numpy(), baseline.loc[problems, metric].to_numpy()
            if not np.isnan(sides).any():  # of a task that has no such measure
                by_metric.setdefault(str(metric), {})[policy] = sides
    by_policy: dict[str, dict[str, Difference]] = {policy: {} for policy in ours}
    for metric, family in by_metric.items():
        for policy, difference in compute_holm_differences(family, fewest).items():
            by_policy[policy][metric] = difference
    return by_policy


def compute_holm_differences(family: Mapping[Key, Sides], fewest: int = FEWEST) -> dict[Key, Difference]:
    """The difference of each policy by one metric, or of each policy and metric, tested together; of fewer than
    `fewest` problems nothing is tested.
    """
    enough = {policy: sides for policy, sides in family.items() if len(sides[0]) >= fewest}
    holm = paired_intervals.holm_correction([_run_paired_test(sides, CHANCE)[1] for sides in enough.values()])
    p = dict(zip(enough, holm.p, strict=True))
    by_key = {}
    for policy, (ours, theirs) in family.items():
        exact = paired_intervals.compare_binary_outcomes(ours, theirs)
        estimate, _ = (
            _run_paired_test((ours, theirs), holm.chance)
            if policy in p
            else (estimate_without_interval(ours - theirs), 1.0)
        )
        by_key[policy] = Difference(estimate, exact[1] if exact else None, p.get(policy), holm.chance)
    return by_key


def _run_paired_test(sides: Sides, chance: float) -> tuple[Estimate, float]:
    """The score test where every value is 0 or 1, otherwise Student's: the interval and the p of the same test."""
    if exact := paired_intervals.compare_binary_outcomes(*sides, chance):
        return exact[0], exact[1].p
    return paired_intervals.student_t_interval(sides[0] - sides[1], chance)


def estimate_without_interval(values: np.ndarray) -> Estimate:
    """The mean of values of which too few are there for an interval."""
    return Estimate(float(values.mean()), -inf, inf)


def compute_gains_over_greedy(values: pd.DataFrame, metrics: list[str], fewest: int = FEWEST) -> dict[str, Difference]:
    """What a policy gains over its own greedy answers by other means: the differences of `metrics`, tested together."""
    greedy = values["strict_greedy"].to_numpy()
    return compute_holm_differences({metric: (values[metric].to_numpy(), greedy) for metric in metrics}, fewest)
