"""Results of several seeds as one: means over seeds with intervals over seeds, and beside them intervals over problems.

The two answer different questions. Over seeds: would another training, with another seed, come out alike? Over problems: would other
problems of this kind? A difference that both hold apart from 0 is one that neither chance explains.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from tasks.common import estimates
from tasks.common.estimates import Estimate
from tasks.language.reporting.differences import Difference, differences
from tasks.language.reporting.scoreboard import MARKS, Cell, Results, Table, tables
from tasks.language.reporting.strata import Components

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
    changes = {
        policy: {
            metric: _difference([one.changes[policy][metric] for one in seeds])
            for metric in found
            if all(metric in one.changes[policy] for one in seeds)
        }
        for policy, found in first.changes.items()
    }
    controls = {
        metric: _difference([one.controls[metric] for one in seeds])
        for metric in first.controls
        if all(metric in one.controls for one in seeds)
    }
    return Results(judged, first.baseline, _best(seeds), changes, controls, _components(seeds, _over_seeds))


def over_problems(seeds: Sequence[Results], measured: Sequence[Measured], seed: int, resamples: int) -> Results:
    """The same means, with intervals over problems: of a problem's numbers the mean over seeds counts.

    A number that is not one of each problem has the mean of its seeds' own intervals.
    """
    first = seeds[0]
    averaged = {
        policy: sum((one[policy] for one in measured[1:]), start=measured[0][policy]) / len(measured)
        for policy in first.judged
    }
    base = averaged[first.baseline]
    found = {
        policy: differences(table, base, seed, resamples)
        for policy, table in averaged.items()
        if policy != first.baseline
    }
    judged = {
        policy: {
            metric: _mean([result.judged[policy][metric] for result in seeds])
            for metric in first.judged[policy]
            if all(metric in one.judged[policy] for one in seeds)
        }
        for policy in first.judged
    }
    controls = {
        metric: Difference(_mean([one.controls[metric].estimate for one in seeds]), None)
        for metric in first.controls
        if all(metric in one.controls for one in seeds)
    }
    return Results(judged, first.baseline, _best(seeds), found, controls, _components(seeds, _mean))


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


def _difference(seeds: Sequence[Difference]) -> Difference:
    return Difference(estimates.over_seeds([difference.estimate.mean for difference in seeds]), None)


def _mean(seeds: Sequence[Estimate]) -> Estimate:
    return Estimate(*(float(np.mean([getattr(one, end) for one in seeds])) for end in ("mean", "low", "high")))


def _over_seeds(seeds: Sequence[Estimate]) -> Estimate:
    return estimates.over_seeds([estimate.mean for estimate in seeds])


def _best(seeds: Sequence[Results]) -> dict[str, float]:
    """The temperature that is a policy's best for most seeds."""
    return {
        policy: Counter(one.best[policy] for one in seeds).most_common(1)[0][0]
        for policy in seeds[0].best
        if all(policy in one.best for one in seeds)
    }


def _components(
    seeds: Sequence[Results], merge: Callable[[Sequence[Estimate]], Estimate]
) -> dict[str, dict[str, dict[str, Components]]]:
    found: dict[str, dict[str, dict[str, Components]]] = {}
    for name, temperatures in seeds[0].components.items():
        for how, policies in temperatures.items():
            for policy in policies:
                parts = [one.components.get(name, {}).get(how, {}).get(policy) for one in seeds]
                there = [part for part in parts if part is not None]
                if len(there) == len(seeds):
                    merged = (merge([getattr(part, part_name) for part in there]) for part_name in vars(there[0]))
                    found.setdefault(name, {}).setdefault(how, {})[policy] = Components(*merged)
    return found
