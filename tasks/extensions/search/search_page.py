"""What the page of `search` shows: sentences made from the numbers, the figure, one table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from tasks.common import estimates, tables
from tasks.common.estimates import Estimate
from tasks.common.tables import Record
from tasks.extensions.search import methods, picture, scoring
from tasks.extensions.search.configs.search import SearchConfig
from tasks.extensions.search.methods import MethodCurve
from tasks.extensions.search.sampling import TestPrompts

ORACLE = "pass"
SCORES = {
    scoring.LIKELIHOOD: "own log-probability",
    "pairs": "reward model of pairs",
    "outcome": "outcome reward model",
    "process_minimum": "process reward model (minimum)",
    "process_product": "process reward model (product)",
    "process_last": "process reward model (last)",
}
DRAWN = ("pass", "majority", "best_likelihood", "best_pairs", "best_outcome", "best_process_minimum", "beam")
Lines = Mapping[str, Sequence[MethodCurve]]  # by model


def format_method_name(method: str) -> str:
    """A method as a person reads it."""
    kind, _, score = method.partition("_")
    if score:
        return f"{'weighted majority' if kind == 'weighted' else 'best'} by {SCORES[score]}"
    return {"greedy": "greedy", "pass": "pass@n", "majority": "majority", "beam": "beam search"}[method]


def build_search_page(
    config: SearchConfig, accuracies: pd.DataFrame, lines: Lines, numbers: Mapping[str, Any], problem_set: TestPrompts
) -> tuple[dict[str, str], dict[str, object]]:
    """The figures by name, and what the templates ask for."""
    larger = next(iter(lines))
    figures = {"scaling": render_accuracy_figure(accuracies, larger)}
    shown = {
        "title": "Test-time scaling",
        "headline": [*format_search_headline(config, lines, numbers)],
        "config": config,
        "problems": len(problem_set.problems),
        "models": {name: numbers[name] for name in lines},
        "groups": [build_model_table(name, accuracies) for name in lines],
        "beams": any(line.method == "beam" for model_lines in lines.values() for line in model_lines),
    }
    return figures, shown


def format_search_headline(config: SearchConfig, lines: Lines, numbers: Mapping[str, Any]) -> Iterator[str]:
    """For each model where search beats the larger one's greedy answer; ties by chance."""
    larger = next(iter(lines))
    base = lines[larger][0]
    accuracy = estimates.estimate_share(base.right[0])
    yield (
        f"{_format_weight_count(larger, numbers)} answers {_format_percent(accuracy)} of the problems greedily, with "
        f"{base.tokens.mean():.0f} tokens a problem."
    )
    for name, model_lines in lines.items():
        whose = "its own greedy answers" if name == larger else f"{larger}'s greedy answers"
        what = f"{_format_weight_count(name, numbers)} with search"
        wins = [*iterate_methods_beating_greedy(config, model_lines, base)]
        if not wins:
            yield f"{what}: no budget of any method beats {whose}. {_format_nearest_method(config, model_lines, base)}"
            continue
        row = min(wins, key=lambda candidate: candidate["tokens"])
        best = max(wins, key=lambda candidate: candidate["difference"].mean)
        yield (
            f"{what} beats {whose} from {_format_method_and_budget(row)} on: {_format_points(row['difference'])}, at "
            f"{row['tokens']:.0f} "
            "tokens a problem. "
            f"The largest gain is by {_format_method_and_budget(best)}: {_format_points(best['difference'])}, at "
            f"{best['tokens']:.0f} tokens a problem."
        )


def _format_nearest_method(config: SearchConfig, lines: Sequence[MethodCurve], base: MethodCurve) -> str:
    row = max(iterate_comparisons_with_greedy(config, lines, base), key=lambda candidate: candidate["difference"].mean)
    return (
        f"The nearest is {_format_method_and_budget(row)}: {_format_points(row['difference'])}, at "
        f"{row['tokens']:.0f} tokens a problem."
    )


def iterate_comparisons_with_greedy(
    config: SearchConfig, lines: Sequence[MethodCurve], base: MethodCurve
) -> Iterator[Record]:
    """Each method that can be used, at each budget, against greedy answers problem by problem, with a 95 % interval."""
    for line in lines:
        if line.method in (ORACLE, "greedy") or (line.ties == methods.FIRST and line.method != "beam"):
            continue
        for budget, right, tokens in zip(line.budgets, line.right, line.tokens, strict=True):
            difference = estimates.bootstrap_mean(right - base.right[0], config.seed, config.bootstrap)
            yield {"method": line.method, "budget": budget, "difference": difference, "tokens": tokens.mean()}


def iterate_methods_beating_greedy(
    config: SearchConfig, lines: Sequence[MethodCurve], base: MethodCurve
) -> Iterator[Record]:
    """Those whose interval lies above 0 at this budget and at every larger one of the method."""
    rows = [*iterate_comparisons_with_greedy(config, lines, base)]
    for row in rows:
        later = [
            later_row
            for later_row in rows
            if later_row["method"] == row["method"] and later_row["budget"] >= row["budget"]
        ]
        if all(later_row["difference"].low > 0 for later_row in later):
            yield row


def _format_method_and_budget(row: Record) -> str:
    return f"{format_method_name(row['method'])} of {row['budget']}"


def _format_weight_count(name: str, numbers: Mapping[str, Any]) -> str:
    return f"{name} ({numbers[name]['weights']:,} weights)"


def _format_percent(value: Estimate) -> str:
    return f"{100 * value.mean:.1f} % [{100 * value.low:.1f}, {100 * value.high:.1f}]"


def _format_points(value: Estimate) -> str:
    return f"{100 * value.mean:+.1f} points [{100 * value.low:+.1f}, {100 * value.high:+.1f}]"


def build_model_table(name: str, accuracies: pd.DataFrame) -> Record:
    """One model's part of the table: a row for each method, and for first wins where it differs; a cell for each
    budget.
    """
    model_rows = accuracies[accuracies["model"] == name]
    budgets = sorted({int(budget) for budget in model_rows["budget"]})
    rows: list[Record] = []
    shown: dict[str, pd.Series] = {}
    for (method, ties), cells in model_rows.groupby(["method", "ties"], sort=False):
        rounded = cells["accuracy"].round(3).reset_index(drop=True)
        first = ties == methods.FIRST and method != "beam"
        if first and rounded.equals(shown[str(method)]):
            continue
        shown[str(method)] = rounded
        by_budget = {int(cell["budget"]): cell for cell in tables.list_records(cells)}
        rows.append(
            {
                "name": format_method_name(str(method)) + (", first wins" if first else ""),
                "cells": [by_budget.get(budget) for budget in budgets],
            }
        )
    return {"name": name, "budgets": budgets, "rows": rows}


def render_accuracy_figure(accuracies: pd.DataFrame, larger: str) -> str:
    """Accuracy against generated tokens: a panel for each model, the small one first; dashed, what the larger one
    reaches greedily.
    """
    panels = {}
    for name in reversed([*accuracies["model"].unique()]):
        drawn_rows = accuracies[(accuracies["model"] == name) & accuracies["method"].isin(DRAWN)]
        lines: dict[str, list[tuple[float, Estimate]]] = {}
        for row in tables.list_records(
            drawn_rows[(drawn_rows["ties"] == methods.CHANCE) | (drawn_rows["method"] == "beam")]
        ):
            point = float(row["tokens"]), Estimate(row["accuracy"], row["low"], row["high"])
            lines.setdefault(format_method_name(row["method"]), []).append(point)
        order = [format_method_name(method) for method in DRAWN]
        panels[name] = {label: lines[label] for label in sorted(lines, key=order.index)}
    [base] = accuracies[(accuracies["model"] == larger) & (accuracies["method"] == "greedy")]["accuracy"]
    return picture.render_scaling_figure(
        panels, {f"{larger}, greedy": float(base)}, "generated tokens a problem", "strict accuracy", "scaling"
    )
