"""Results of several seeds as one: means over seeds with intervals over seeds, and beside them intervals over problems.

The two answer different questions. Over seeds: would another training, with another seed, come out alike? Over problems: would other
problems of this kind? A difference that both hold apart from 0 is one that neither chance explains.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from tasks.common import estimates
from tasks.common.estimates import Estimate
from tasks.language.reporting.comparing import changes
from tasks.language.reporting.differences import FEWEST, Difference
from tasks.language.reporting.scoreboard import MARKS, Cell, Results, Table, tables

PROBLEMS_ALONE = {1: "△", 0: "", -1: "▽"}  # the interval over problems is apart from 0, that over seeds is not
Measured = Mapping[str, pd.DataFrame]  # policy -> its measures: problems x metrics


def over_seeds(seeds: Sequence[Results]) -> Results:
    """Every number as its mean over seeds, with the interval over seeds; numbers that not every seed has are left out."""
    first = seeds[0]
    judged = {
        policy: {
            metric: estimates.over_seeds([result.judged[policy][metric].mean for result in seeds])
            for metric in first.judged[policy]
            if all(metric in one.judged[policy] for one in seeds)
        }
        for policy in first.judged
    }
    return Results(
        judged,
        first.baseline,
        _best(seeds),
        {policy: _over_seeds([one.changes[policy] for one in seeds]) for policy in first.changes},
        first.controls,
        _over_seeds([one.untrained for one in seeds]),
        _over_seeds([one.over_rival for one in seeds]) if len({one.rival for one in seeds}) == 1 else {},
    )


def over_problems(seeds: Sequence[Results], measured: Sequence[Measured], fewest: int = FEWEST) -> Results:
    """The same means, with intervals over problems: of a problem's numbers the mean over seeds counts.

    A number that is not one of each problem has the mean of its seeds' own intervals. Of fewer problems than `fewest` no difference is tested.
    """
    first = seeds[0]
    averaged = {
        policy: sum((one[policy] for one in measured[1:]), start=measured[0][policy]) / len(measured)
        for policy in first.judged
    }
    judged = {
        policy: {
            metric: _mean([result.judged[policy][metric] for result in seeds])
            for metric in first.judged[policy]
            if all(metric in one.judged[policy] for one in seeds)
        }
        for policy in first.judged
    }
    untrained = {
        metric: Difference(_mean([one.untrained[metric].estimate for one in seeds]), None)
        for metric in first.untrained
        if all(metric in one.untrained for one in seeds)
    }
    found = changes(averaged, first.baseline, fewest)
    return replace(first, judged=judged, best=_best(seeds), changes=found, untrained=untrained, over_rival={})


def joined(seeds: Results, problems: Results) -> list[Table]:
    """The report's tables, each cell with both intervals; an arrow where the change is apart from 0 over both, or over problems alone.

    Columns of which nothing is known over seeds, such as the numbers of problems gained and lost, are left out.
    """
    found = []
    others = {table.title: table for table in tables(problems)}
    for table in tables(seeds):
        beside = dict(others[table.title].rows) if table.title in others else {}
        rows = []
        for policy, cells in table.rows:
            pairs = zip(cells, beside.get(policy, cells), strict=False)
            rows.append((policy, [_cell(one, other) for one, other in pairs]))
        known = [index for index in range(len(table.columns)) if any(cells[index]["text"] for _, cells in rows)]
        shown = [(policy, [cells[index] for index in known]) for policy, cells in rows]
        found.append(Table(table.title, [table.columns[index] for index in known], shown))
    return found


def _cell(seeds: Cell, problems: Cell) -> Cell:
    sides = {mark: side for side, mark in MARKS.items()}
    both = sides[seeds["mark"]] == sides[problems["mark"]]
    mark = seeds["mark"] if both else PROBLEMS_ALONE[sides[problems["mark"]]]
    interval = f"seeds {seeds['interval']}; problems {problems['interval']}" if seeds["interval"] else ""
    return {"text": seeds["text"], "interval": interval, "mark": mark}


def _over_seeds(seeds: Sequence[Mapping[str, Difference]]) -> dict[str, Difference]:
    """Of each metric that all seeds have the mean difference with its interval over seeds."""
    means = {
        metric: [one[metric].estimate.mean for one in seeds]
        for metric in seeds[0]
        if all(metric in one for one in seeds)
    }
    return {metric: Difference(estimates.over_seeds(values), None) for metric, values in means.items()}


def _mean(seeds: Sequence[Estimate]) -> Estimate:
    return Estimate(*(float(np.mean([getattr(one, end) for one in seeds])) for end in ("mean", "low", "high")))


def _best(seeds: Sequence[Results]) -> dict[str, float]:
    """The temperature that is a policy's best for most seeds."""
    return {
        policy: Counter(one.best[policy] for one in seeds).most_common(1)[0][0]
        for policy in seeds[0].best
        if all(policy in one.best for one in seeds)
    }
