"""The tables of docs/faults.md, made of the results in benchmarks/results/training_faults (benchmarks/claims.py)."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import tables

Results = Mapping[str, Mapping[str, Any]]


def curve(results: Results, *columns: str) -> str:
    """A row for each arm that has a curve: the means over the first and over the last tenth of its steps."""
    rows = [["", *columns]]
    for arm, seeds in results.items():
        if "curve" in seeds["0"]:
            rows.append([arm, *(_format_first_and_last_mean(seeds["0"]["curve"][column]) for column in columns)])
    return tables.render_markdown_table(rows)


def evaluated(results: Results, *metrics: str) -> str:
    """A row for each arm that was evaluated: these metrics with 95 % intervals over problems, and which are apart from
    the first arm's.
    """
    rows = [["", *metrics, "interval apart from the first row's"]]
    first: Mapping[str, Any] = next(iter(results.values()))["0"]["evaluated"]
    for arm, seeds in results.items():
        scores = seeds["0"]["evaluated"]
        shown = [scores[metric] for metric in metrics]
        pairs = [(name, scores[name], first[name]) for name in metrics]
        apart = [name for name, score, other in pairs if score["low"] > other["high"] or score["high"] < other["low"]]
        cells = ["{mean:.3g} [{low:.3g}, {high:.3g}]".format(**score) for score in shown]
        rows.append([arm, *cells, ", ".join(apart) or "none"])
    return tables.render_markdown_table(rows)


def mismatch(results: Results, *names: str) -> str:
    """A row for each arm whose sampler was held against its trainer: these differences."""
    measured = {arm: seeds["0"]["mismatch"] for arm, seeds in results.items() if "mismatch" in seeds["0"]}
    return tables.render_markdown_table(
        [["", *names], *([arm, *(f"{row[name]:.2g}" for name in names)] for arm, row in measured.items())]
    )


def estimators(results: Results, arm: str) -> str:
    """A row for each distance from SFT: each estimator's standard deviation, and its bias where that is beyond its 95 %
    interval.
    """
    names = ("k1", "k2", "k3")
    rows = [["exact KL, nats a token", *(f"{name}, standard deviation" for name in names), "biased beyond chance"]]
    for point in results[arm]["0"]["estimates"]:
        biased = [name for name in names if abs(point[name]["bias"]) > 1.96 * point[name]["error"]]
        shown = [f"{name} by {point[name]['bias']:+.2g}" for name in biased]
        rows.append(
            [f"{point['exact']:.2g}", *(f"{point[name]['spread']:.2g}" for name in names), ", ".join(shown) or "none"]
        )
    return tables.render_markdown_table(rows)


def best_of_n(results: Results) -> str:
    """A row for each reward model: held-out accuracy, where the rubric is highest, and from which n on the gain over
    one sample is gone.
    """
    rows = [["reward model", "held-out pairs", "one sample", "highest rubric", "at n", "at KL, nats", "gain gone at n"]]
    for name, row in results["best of n"].items():
        rubric = [values[0] for values in row["rubric"]]
        top = rubric.index(max(rubric))
        cells = [f"{row['held_out']:.2f}", f"{rubric[0]:.2f}", f"{rubric[top]:.2f}", row["n"][top]]
        rows.append([name, *map(str, cells), f"{row['kl'][top]:.2f}", str(_find_n_without_gain(row["n"], rubric))])
    return tables.render_markdown_table(rows)


def moves(results: Results, size: str) -> str:
    """A sentence: whether the n at which the gain is gone grows with the pairs, for reward models of one size."""
    rows = {name.split(", ")[1]: row for name, row in results["best of n"].items() if name.startswith(f"{size},")}
    gone = {
        pairs: _find_n_without_gain(row["n"], [values[0] for values in row["rubric"]]) for pairs, row in rows.items()
    }
    first, *_, last = gone.values()
    verdict = "moves to larger n with the pairs" if last > first else "does not move to larger n with the pairs"
    shown = ", ".join(f"{n} with {pairs}" for pairs, n in gone.items())
    return (
        f"The gain over one sample is gone at n = {shown}: it {verdict}, on this grid of powers of two and one seed.\n"
    )


def path(results: Results) -> str:
    """A row for a few points of PPO's path: its KL, the head's score, the rubric and right answers."""
    (row,) = results["PPO"].values()
    top = row["rubric"].index(max(row["rubric"]))
    points = {"start": 0, "highest rubric": top, "end": len(row["kl"]) - 1}
    names = ("kl", "proxy", "rubric", "right")
    return tables.render_markdown_table(
        [["", *names], *([name, *(f"{row[key][index]:.2f}" for key in names)] for name, index in points.items())]
    )


def _find_n_without_gain(grid: Sequence[int], rubric: Sequence[float]) -> float:
    """The first n behind the top at which the best of n is no better than one sample; infinity where there is none."""
    top = rubric.index(max(rubric))
    return next((n for n, value in zip(grid[top:], rubric[top:], strict=True) if value <= rubric[0]), float("inf"))


def _format_first_and_last_mean(values: Sequence[float]) -> str:
    tenth = max(1, len(values) // 10)
    return f"{statistics.mean(values[:tenth]):.3g} to {statistics.mean(values[-tenth:]):.3g}"
