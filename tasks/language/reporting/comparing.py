"""Every policy's evaluation beside its differences to the baseline, from what the stage `evaluate` wrote of each."""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from math import inf, isnan
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tasks.common import estimates, tables
from tasks.common.estimates import Estimate
from tasks.language.configs.report import ReportConfig
from tasks.language.reporting import gain_warnings, gold
from tasks.language.reporting.differences import (
    FEWEST,
    Difference,
    Sides,
    compute_differences,
    compute_gains_over_greedy,
    compute_holm_differences,
    read_measures,
)
from tasks.language.reporting.metric_wording import BEST, parse_temperature_suffix
from tasks.language.reporting.scoreboard import Results
from tasks.language.tables.evaluation import Generations
from tasks.language.tables.problems import OTHER_KINDS, Problems

Answers = Mapping[str, pd.DataFrame]  # policy -> its generations


def load_training_curves(
    config: ReportConfig, folders: Mapping[str, Path], reward_model: Path
) -> dict[str, pd.DataFrame]:
    """How each policy learned, and behind the baseline the reward model; a model that existed already has no curve."""
    curve_folders = {**folders, "reward_model": reward_model}
    after = config.policies.index(config.baseline) + 1
    order = [*config.policies[:after], "reward_model", *config.policies[after:]]
    return {
        name: pd.read_csv(curve_folders[name] / "curve.csv")
        for name in order
        if (curve_folders[name] / "curve.csv").is_file()
    }


def read_evaluation_metrics(folder: Path) -> dict[str, Any]:
    """What the stage `evaluate` measured of a policy."""
    metrics: dict[str, Any] = json.loads((folder / "evaluation.json").read_text())
    return metrics


def compare_policies(
    config: ReportConfig, evaluations: Path, answers: Answers, metrics: Mapping[str, Mapping[str, Any]]
) -> Results:
    """Every policy's evaluation beside its differences to the baseline and to the better control, problem by
    problem.
    """
    best = {
        name: float(numbers["best_temperature"]) for name, numbers in metrics.items() if "best_temperature" in numbers
    }
    judged = {
        name: {
            metric: Estimate(**estimate)
            for metric, estimate in numbers.items()
            if isinstance(estimate, dict) and not isnan(estimate["mean"])
        }
        for name, numbers in metrics.items()
    }
    values = {name: read_measures(evaluations / name / "measures.parquet") for name in answers}
    hows = [parse_temperature_suffix(name) for name in judged[config.baseline] if name.startswith("length_sampled_")]
    for name, numbers in compute_win_rates(answers, best, config.baseline, hows).items():
        judged[name] |= numbers
    fewest = FEWEST
    if count_distinct_prompts(evaluations / config.baseline) < FEWEST:
        judged = {name: _drop_interval_bounds(numbers) for name, numbers in judged.items()}
        fewest = sys.maxsize
    changed = compute_changes_to_baseline(values, config.baseline, fewest)
    on_other_kinds = compute_other_kind_changes({name: evaluations / name for name in answers}, config.baseline, fewest)
    changed = {name: differences_of | on_other_kinds.get(name, {}) for name, differences_of in changed.items()}
    controls = tuple(name for name in config.controls if name in config.policies)
    results = Results(judged, config.baseline, best, changed, controls)
    rival = results.rival
    first = results.first
    measured = {name: values[name][[first]] for name in results.methods if first in values[name]}
    over = compute_differences(measured, values[rival], fewest)
    results = replace(results, over_rival={name: deltas[first] for name, deltas in over.items() if first in deltas})
    if rival != config.baseline:
        apart = [metric for metric in gain_warnings.PAID_IN if metric in values[rival]]
        measured = {name: values[name][apart] for name in results.methods}
        kinds = compute_other_kind_changes(
            {name: evaluations / name for name in [rival, *results.methods]}, rival, fewest
        )
        deltas = compute_differences(measured, values[rival], fewest)
        results = replace(results, rival_changes={name: deltas[name] | kinds.get(name, {}) for name in deltas})
    if not results.answered:
        return results
    names = [
        name for name in values[config.baseline].columns if _is_untrained_metric(name, best.get(config.baseline, 0.0))
    ]
    names.sort(key=lambda name: (not name.endswith(BEST), name))
    return replace(results, untrained=compute_gains_over_greedy(values[config.baseline], names, fewest))


def count_distinct_prompts(folder: Path) -> int:
    """How many of a policy's test problems differ in what is asked: equal ones are no more evidence than a single
    one.
    """
    problems = tables.read_table(Problems, folder / "asked.parquet")
    return len(problems.drop_duplicates(["question", *(["history"] if "history" in problems else [])]))


def compute_changes_to_baseline(
    values: Mapping[str, pd.DataFrame], baseline: str, fewest: int = FEWEST
) -> dict[str, dict[str, Difference]]:
    """Every policy's differences to the baseline by metric, those of gold answers taken apart; `values` are their
    measures.
    """
    others = {name: table for name, table in values.items() if name != baseline}
    by_policy = compute_differences(others, values[baseline], fewest)
    families: dict[str, dict[str, Sides]] = {}
    for name, table in others.items():
        problems = table.index.intersection(values[baseline].index)
        for part, sides in gold.split_gold_change(table.loc[problems], values[baseline].loc[problems]).items():
            families.setdefault(part, {})[name] = sides
    for part, family in families.items():
        for name, difference in compute_holm_differences(family, fewest).items():
            by_policy[name][part] = difference
    return by_policy


def compute_other_kind_changes(
    folders: Mapping[str, Path], baseline: str, fewest: int = FEWEST
) -> dict[str, dict[str, Difference]]:
    """Every policy's differences to the baseline in right greedy answers to problems of other kinds; nothing where none
    were asked.

    All policies and kinds are tested together.
    """
    files = {name: folder / "other_kinds.parquet" for name, folder in folders.items()}
    if not all(file.is_file() for file in files.values()):
        return {}
    answered = {name: tables.read_table(Generations, file).set_index("problem_id") for name, file in files.items()}
    if not all("strict" in table for table in answered.values()):
        return {}
    others = [name for name in folders if name != baseline]
    family: dict[tuple[str, str], Sides] = {}
    for name in others:
        both = pd.DataFrame({"ours": answered[name]["strict"], "theirs": answered[baseline]["strict"]}).dropna()
        kinds = both.index.to_series().str.rpartition("-")[0]
        for kind in OTHER_KINDS:
            rows = both[kinds == kind].astype(float)
            if len(rows):
                family[name, kind] = rows["ours"].to_numpy(), rows["theirs"].to_numpy()
    by_policy: dict[str, dict[str, Difference]] = {name: {} for name in others}
    for (name, kind), difference in compute_holm_differences(family, fewest).items():
        by_policy[name][f"strict_greedy_{kind}"] = difference
    return by_policy


def _drop_interval_bounds(numbers: Mapping[str, Estimate]) -> dict[str, Estimate]:
    return {metric: Estimate(estimate.mean, -inf, inf) for metric, estimate in numbers.items()}


def _is_untrained_metric(metric: str, best: float) -> bool:
    """Whether the baseline reaches it untrained: sampled at the best temperature, if that is not 0, or by a vote or a
    choice among samples.
    """
    voted = metric.startswith(("strict_majority_at_", "strict_best_of_")) and parse_temperature_suffix(metric) != BEST
    return voted or (best > 0 and metric.startswith("strict_mean_at_") and parse_temperature_suffix(metric) == BEST)


def get_answer_temperature(how: str, best: Mapping[str, float], name: str) -> float:
    """The temperature that a metric names by its end; a policy's own best one is in `best`."""
    return best[name] if how == BEST else 0.0 if how == "greedy" else float(how.removeprefix("t"))


def compute_win_rates(
    answers: Answers, best: Mapping[str, float], baseline: str, hows: list[str]
) -> dict[str, dict[str, Estimate]]:
    """Each policy against the baseline by rubric points, or else by reward: greedy against greedy, and all pairs of
    samples.

    All k x k pairs of a problem's samples are compared, and a problem counts once. A tie is half a win, and the share
    of ties stands beside it. Without points and rewards there are none.
    """
    rates: dict[str, dict[str, Estimate]] = {name: {} for name in answers if name != baseline}
    judges = [name for name in ("rubric", "reward") if all(name in frame for frame in answers.values())]
    for how in ("greedy", *hows) if judges else ():
        scores = {
            name: _pivot_scores(frame, judges[0], get_answer_temperature(how, best, name))
            for name, frame in answers.items()
        }
        end = "greedy" if how == "greedy" else f"sampled_{how}"
        for name, shares in rates.items():
            pairs = estimates.compute_win_values(scores[name][:, :, None], scores[baseline][:, None, :])
            shares[f"win_rate_{end}"] = estimates.estimate_share(pairs.mean(axis=(1, 2)))
            shares[f"tie_rate_{end}"] = estimates.estimate_share((pairs == 0.5).mean(axis=(1, 2)))
    return rates


def _pivot_scores(frame: pd.DataFrame, judge: str, temperature: float) -> np.ndarray:
    """Rubric points or rewards by problem, in the order of their ids: (P, k)."""
    drawn = frame[frame["temperature"] == temperature]
    return drawn.pivot(index="problem_id", columns="sample", values=judge).sort_index().to_numpy()
