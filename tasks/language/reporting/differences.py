"""Policies held against a baseline problem by problem: what differs, how surely, and on how many problems."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from tasks.common import estimates, tables
from tasks.common.estimates import Changes, Estimate
from tasks.language.tables.evaluation import Measures


@dataclass(frozen=True)
class Difference:
    """A difference of means with its paired interval; `changes` where every problem is either right or wrong."""

    estimate: Estimate
    changes: Changes | None

    @property
    def side(self) -> int:
        """1 where the interval lies wholly above 0, -1 wholly below, 0 where it holds 0."""
        return (self.estimate.low > 0) - (self.estimate.high < 0)

    def numbers(self) -> dict[str, float]:
        """The difference as numbers for a file of metrics."""
        return {**asdict(self.estimate), **(asdict(self.changes) if self.changes else {})}


def read_measures(path: Path) -> pd.DataFrame:
    """A policy's measures: one row for each problem by its id, one column for each metric."""
    return tables.read(Measures, path).pivot(index="problem_id", columns="metric", values="value")


def differences(ours: pd.DataFrame, baseline: pd.DataFrame, seed: int, resamples: int) -> dict[str, Difference]:
    """The difference of each metric (column) that both tables have, over the problems (rows by id) that both have.

    Raises ValueError if they share no problem.
    """
    problems = ours.index.intersection(baseline.index)
    if problems.empty:
        raise ValueError("policies can be compared on the same problems only; these share none")
    metrics = ours.columns.intersection(baseline.columns)
    mine, theirs = (table.loc[problems, metrics] for table in (ours, baseline))
    draws = estimates.resampled_means(mine - theirs, seed, resamples)
    found = {}
    for place, metric in enumerate(metrics):
        difference = estimates.percentiles(float((mine - theirs)[metric].mean()), draws[:, place])
        binary = np.isin([mine[metric], theirs[metric]], (0.0, 1.0)).all()
        found[str(metric)] = Difference(difference, estimates.mcnemar(mine[metric], theirs[metric]) if binary else None)
    return found


def over_greedy(values: pd.DataFrame, metrics: Mapping[str, str], seed: int, resamples: int) -> dict[str, Difference]:
    """What a policy gains over its own greedy answers by other means: the differences of `metrics[name]`, by name."""
    others = pd.DataFrame({name: values[metric] for name, metric in metrics.items()})
    greedy = pd.DataFrame(dict.fromkeys(metrics, values["strict_greedy"]))
    return differences(others, greedy, seed, resamples)
