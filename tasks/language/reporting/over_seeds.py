"""Results of several seeds as one: means over seeds with intervals over seeds, and beside them intervals over problems.

The two answer different questions. Over seeds: would another training, with another seed, come out alike? Over
problems: would other problems of this kind? A difference that both hold apart from 0 is one that neither chance
explains.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from tasks.common import estimates
from tasks.common.estimates import Estimate
from tasks.language.reporting.comparing import compute_changes_to_baseline
from tasks.language.reporting.differences import FEWEST, Difference
from tasks.language.reporting.scoreboard import MARKS, Cell, Results, ScoreTable, build_score_tables

PROBLEMS_ALONE = {1: "△", 0: "", -1: "▽"}  # the interval over problems is apart from 0, that over seeds is not
Measured = Mapping[str, pd.DataFrame]  # policy -> its measures: problems x metrics


def average_results_over_seeds(seeds: Sequence[Results]) -> Results:
    """Every number as its mean over seeds, with the interval over seeds; numbers that not every seed has are left
    out.
    """
    first = seeds[0]
    judged = {
        policy: {
            metric: estimates.estimate_mean_over_seeds([result.judged[policy][metric].mean for result in seeds])
            for metric in first.judged[policy]
            if all(metric in seed_results.judged[policy] for seed_results in seeds)
        }
        for policy in first.judged
    }
    return Results(
        judged,
        first.baseline,
        _select_commonest_temperatures(seeds),
        {
            policy: _average_differences([seed_results.changes[policy] for seed_results in seeds])
            for policy in first.changes
        },
        first.controls,
        _average_differences([seed_results.untrained for seed_results in seeds]),
        _average_differences([seed_results.over_rival for seed_results in seeds])
        if len({seed_results.rival for seed_results in seeds}) == 1
        else {},
    )


def average_seeds_with_problem_intervals(
    seeds: Sequence[Results], measured: Sequence[Measured], fewest: int = FEWEST
) -> Results:
    """The same means, with intervals over problems: of a problem's numbers the mean over seeds counts.

    A number that is not one of each problem has the mean of its seeds' own intervals. Of fewer problems than `fewest`
    no difference is tested.
    """
    first = seeds[0]
    averaged = {
        policy: sum((seed_measures[policy] for seed_measures in measured[1:]), start=measured[0][policy])
        / len(measured)
        for policy in first.judged
    }
    judged = {
        policy: {
            metric: _average_estimates([result.judged[policy][metric] for result in seeds])
            for metric in first.judged[policy]
            if all(metric in seed_results.judged[policy] for seed_results in seeds)
        }
        for policy in first.judged
    }
    untrained = {
        metric: Difference(
            _average_estimates([seed_results.untrained[metric].estimate for seed_results in seeds]), None
        )
        for metric in first.untrained
        if all(metric in seed_results.untrained for seed_results in seeds)
    }
    averaged_changes = compute_changes_to_baseline(averaged, first.baseline, fewest)
    return replace(
        first,
        judged=judged,
        best=_select_commonest_temperatures(seeds),
        changes=averaged_changes,
        untrained=untrained,
        over_rival={},
    )


def join_score_tables(seeds: Results, problems: Results) -> list[ScoreTable]:
    """The report's tables, each cell with both intervals; an arrow where the change is apart from 0 over both, or over
    problems alone.

    Columns of which nothing is known over seeds, such as the numbers of problems gained and lost, are left out.
    """
    joined_tables = []
    others = {table.title: table for table in build_score_tables(problems)}
    for table in build_score_tables(seeds):
        beside = dict(others[table.title].rows) if table.title in others else {}
        rows = []
        for policy, cells in table.rows:
            pairs = zip(cells, beside.get(policy, cells), strict=False)
            rows.append((policy, [_join_cells(seed_cell, problem_cell) for seed_cell, problem_cell in pairs]))
        filled_columns = [
            index for index in range(len(table.columns)) if any(cells[index]["text"] for _, cells in rows)
        ]
        shown = [(policy, [cells[index] for index in filled_columns]) for policy, cells in rows]
        joined_tables.append(ScoreTable(table.title, [table.columns[index] for index in filled_columns], shown))
    return joined_tables


def _join_cells(seeds: Cell, problems: Cell) -> Cell:
    sides = {mark: side for side, mark in MARKS.items()}
    both = sides[seeds["mark"]] == sides[problems["mark"]]
    mark = seeds["mark"] if both else PROBLEMS_ALONE[sides[problems["mark"]]]
    interval = f"seeds {seeds['interval']}; problems {problems['interval']}" if seeds["interval"] else ""
    return {"text": seeds["text"], "interval": interval, "mark": mark}


def _average_differences(seeds: Sequence[Mapping[str, Difference]]) -> dict[str, Difference]:
    """Of each metric that all seeds have the mean difference with its interval over seeds."""
    means = {
        metric: [seed_differences[metric].estimate.mean for seed_differences in seeds]
        for metric in seeds[0]
        if all(metric in seed_differences for seed_differences in seeds)
    }
    return {metric: Difference(estimates.estimate_mean_over_seeds(values), None) for metric, values in means.items()}


def _average_estimates(seeds: Sequence[Estimate]) -> Estimate:
    return Estimate(
        *(float(np.mean([getattr(estimate, end) for estimate in seeds])) for end in ("mean", "low", "high"))
    )


def _select_commonest_temperatures(seeds: Sequence[Results]) -> dict[str, float]:
    """The temperature that is a policy's best for most seeds."""
    return {
        policy: Counter(seed_results.best[policy] for seed_results in seeds).most_common(1)[0][0]
        for policy in seeds[0].best
        if all(policy in seed_results.best for seed_results in seeds)
    }
