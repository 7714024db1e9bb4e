"""Every policy's evaluation beside its differences to the baseline, from what the stage `evaluate` wrote of each."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tasks.common import estimates
from tasks.common.estimates import Estimate
from tasks.language.configs.report import ReportConfig
from tasks.language.reporting import measures, scoreboard, strata
from tasks.language.reporting.differences import differences, over_greedy, read_measures
from tasks.language.reporting.scoreboard import BEST, Results

Answers = Mapping[str, pd.DataFrame]  # policy -> its generations


def curves(config: ReportConfig, folders: Mapping[str, Path], reward_model: Path) -> dict[str, pd.DataFrame]:
    """How each policy learned, and behind the baseline the reward model; a model that existed already has no curve."""
    places = {**folders, "reward_model": reward_model}
    after = config.policies.index(config.baseline) + 1
    order = [*config.policies[:after], "reward_model", *config.policies[after:]]
    return {name: pd.read_csv(places[name] / "curve.csv") for name in order if (places[name] / "curve.csv").is_file()}


def evaluation(folder: Path) -> dict[str, Any]:
    """What the stage `evaluate` measured of a policy."""
    found: dict[str, Any] = json.loads((folder / "evaluation.json").read_text())
    return found


def compared(
    config: ReportConfig, evaluations: Path, answers: Answers, metrics: Mapping[str, Mapping[str, Any]]
) -> Results:
    """Every policy's evaluation beside its differences to the baseline, problem by problem."""
    best = {
        name: float(numbers["best_temperature"]) for name, numbers in metrics.items() if "best_temperature" in numbers
    }
    judged = {
        name: {metric: Estimate(**value) for metric, value in numbers.items() if isinstance(value, dict)}
        for name, numbers in metrics.items()
    }
    values = {name: read_measures(evaluations / name / "measures.parquet") for name in answers}
    base = values[config.baseline]
    hows = [scoreboard.temperature(name) for name in judged[config.baseline] if name.startswith("length_sampled_")]
    for name, numbers in win_rates(answers, best, config.baseline, hows).items():
        judged[name] |= numbers
    changes = {
        name: differences(table, base, config.seed, config.bootstrap)
        for name, table in values.items()
        if name != config.baseline
    }
    if len(best) < len(answers):  # no right answers are known
        return Results(judged, config.baseline, best, changes, {}, {})
    untrained = sorted(
        (name for name in base.columns if _is_control(name, best[config.baseline])),
        key=lambda name: (not name.endswith(BEST), name),
    )
    controls = over_greedy(base, dict(zip(untrained, untrained, strict=True)), config.seed, config.bootstrap)
    parts = owed(config, answers, best, [how for how in hows if how != BEST])
    return Results(judged, config.baseline, best, changes, controls, parts)


def _is_control(metric: str, best: float) -> bool:
    """Whether it is a control: sampled at the best temperature, if that is not 0, or a vote or a choice among samples at a shared one."""
    voted = metric.startswith(("strict_majority_at_", "strict_best_of_")) and scoreboard.temperature(metric) != BEST
    return voted or (best > 0 and metric.startswith("strict_mean_at_") and scoreboard.temperature(metric) == BEST)


def owed(
    config: ReportConfig, answers: Answers, best: Mapping[str, float], hows: list[str]
) -> dict[str, dict[str, dict[str, strata.Components]]]:
    """Stratum -> temperature -> policy -> what its change of accuracy is owed to, where the answers are of two kinds."""
    found: dict[str, dict[str, dict[str, strata.Components]]] = {}
    for name in measures.STRATA:
        for how in hows:
            split = {
                policy: measures.stratum(frame, name, answer_temperature(how, best, policy))
                for policy, frame in answers.items()
            }
            base = split[config.baseline]
            if 0 < base.inside.mean() < 1:
                found.setdefault(name, {})[how] = {
                    policy: strata.components(parts, base, config.seed, config.bootstrap)
                    for policy, parts in split.items()
                    if policy != config.baseline
                }
    return found


def answer_temperature(how: str, best: Mapping[str, float], name: str) -> float:
    """The temperature that a metric names by its end; a policy's own best one is in `best`."""
    return best[name] if how == BEST else 0.0 if how == "greedy" else float(how.removeprefix("t"))


def win_rates(
    answers: Answers, best: Mapping[str, float], baseline: str, hows: list[str]
) -> dict[str, dict[str, Estimate]]:
    """Each policy against the baseline by rubric points, or else by reward: greedy against greedy, and all pairs of samples.

    All k x k pairs of a problem's samples are compared, and a problem counts once. Without points and rewards there are none.
    """
    rates: dict[str, dict[str, Estimate]] = {name: {} for name in answers if name != baseline}
    judges = [name for name in ("rubric", "reward") if all(name in frame for frame in answers.values())]
    for how in ("greedy", *hows) if judges else ():
        scores = {
            name: _scores(frame, judges[0], answer_temperature(how, best, name)) for name, frame in answers.items()
        }
        for name, shares in rates.items():
            pairs = estimates.win_values(scores[name][:, :, None], scores[baseline][:, None, :])
            metric = "win_rate_greedy" if how == "greedy" else f"win_rate_sampled_{how}"
            shares[metric] = estimates.share(pairs.mean(axis=(1, 2)))
    return rates


def _scores(frame: pd.DataFrame, judge: str, temperature: float) -> np.ndarray:
    """Rubric points or rewards by problem, in the order of their ids: (P, k)."""
    drawn = frame[frame["temperature"] == temperature]
    return drawn.pivot(index="problem_id", columns="sample", values=judge).sort_index().to_numpy()
