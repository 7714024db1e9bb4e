"""Whether policies know what they know: in environments that count what was `answered`, what of it was `right`, and how
often it had been `told`.

A policy that abstains earns what an untrained one could earn by keeping silent when it is unsure. So the clone stands
here with a threshold on the probability of its own greedy answer, which is chosen on one half of the games and counts
on the other. Where it can call a tool, it calls it instead.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan

import numpy as np
import pandas as pd

from tasks.agents.reporting.policy_returns import PolicyEpisodes
from tasks.common import plots
from tasks.common.estimates import Estimate, estimate_mean_over_seeds
from tasks.common.plots import Line, Panel

EVENTS = ("answered", "right", "told")
CALLS = "calls"
BINS = 5


@dataclass(frozen=True)
class KnowledgeRow:
    """A policy's greedy answers, means over seeds."""

    name: str
    coverage: Estimate  # the share of questions that it answers
    accuracy: Estimate  # the share of right ones among its answers; nan where it answers nothing
    earned: Estimate  # the mean return
    with_threshold: Estimate  # the mean return of the same answers, where those below a threshold are kept back
    gap: Estimate  # expected calibration error of its answers (arXiv:1706.04599, eq. 3)
    calls: Estimate | None  # of a tool, a question; None where nobody calls


def build_answer_table(policy: PolicyEpisodes) -> pd.DataFrame | None:
    """The greedy episodes: seed, episode, total, EVENTS, calls, the answer's probability, and what keeping it back
    would earn.

    That is the mean return of the seed's episodes with a call, at all temperatures, and at least 0. None where they
    count something else.
    """
    counted = pd.DataFrame([json.loads(row) for row in policy.episodes["counted"]], index=policy.episodes.index)
    if not set(EVENTS) <= set(counted.columns):
        return None
    counted = counted.reindex(columns=[*EVENTS, CALLS]).fillna(0.0)
    every = policy.episodes[["seed", "temperature", "episode", "total"]].join(counted)
    greedy = every[every["temperature"] == min(policy.temperatures)].reset_index(drop=True)
    turns = policy.turns[policy.turns["temperature"] == greedy["temperature"].iloc[0]]
    scored_turns = turns.assign(logp=[float(np.sum(logps)) for logps in turns["logps"]])
    last = scored_turns.sort_values("turn").groupby(["seed", "episode"])["logp"].last()
    keys = pd.MultiIndex.from_frame(greedy[["seed", "episode"]])
    with_call = every[every[CALLS] > 0].groupby("seed")["total"].mean()
    kept_back = greedy["seed"].map(with_call).fillna(0.0).clip(lower=0.0)
    return greedy.assign(probability=np.exp(last.reindex(keys).to_numpy()), kept_back=kept_back)


def build_knowledge_row(name: str, episodes: pd.DataFrame, with_calls: bool = False) -> KnowledgeRow:
    """A policy's line of the table, from its `answers`."""
    seeds = [rows for _, rows in episodes.groupby("seed")]
    answered = [rows[rows["answered"] > 0] for rows in seeds]
    return KnowledgeRow(
        name,
        estimate_mean_over_seeds([rows["answered"].mean() for rows in seeds]),
        estimate_mean_over_seeds([rows["right"].mean() for rows in answered]),
        estimate_mean_over_seeds([rows["total"].mean() for rows in seeds]),
        estimate_mean_over_seeds([compute_return_with_threshold(rows) for rows in seeds]),
        estimate_mean_over_seeds([calibration_error(rows) for rows in answered]),
        estimate_mean_over_seeds([rows[CALLS].mean() for rows in seeds]) if with_calls else None,
    )


def compute_return_with_threshold(rows: pd.DataFrame) -> float:
    """The mean return where answers below a threshold are kept back: the best one for each half of the games, applied
    to the other.

    Only answers without a call are kept back, for what `answers` says that this earns.
    """
    rows = rows.assign(own=(rows["answered"] > 0) & (rows[CALLS] == 0))
    halves = [rows[rows["episode"] % 2 == half] for half in (0, 1)]
    earned = 0.0
    for chosen_on, applied_to in (halves, halves[::-1]):
        ranked = chosen_on[chosen_on["own"]].sort_values("probability", ascending=False)
        gains = np.concatenate([[0.0], (ranked["total"] - ranked["kept_back"]).cumsum().to_numpy()])
        best = int(gains.argmax())
        least = ranked["probability"].iloc[best - 1] if best else np.inf
        kept = applied_to["own"] & (applied_to["probability"] < least)
        earned += float(applied_to["total"].mask(kept, applied_to["kept_back"]).sum())
    return earned / len(rows)


def calibration_error(answered: pd.DataFrame) -> float:
    """The mean over answers of the distance between probability and share of right ones, in bins as wide as each other;
    nan without an answer.
    """
    if answered.empty:
        return nan
    binned = _bin_by_probability(answered)
    return float((binned["count"] * (binned["observed"] - binned["predicted"]).abs()).sum() / binned["count"].sum())


def _bin_by_probability(answered: pd.DataFrame) -> pd.DataFrame:
    bins = (answered["probability"] * BINS).astype(int).clip(upper=BINS - 1)
    grouped = answered.assign(bin=bins).groupby("bin")
    return pd.DataFrame(
        {"predicted": grouped["probability"].mean(), "observed": grouped["right"].mean(), "count": grouped.size()}
    )


def render_knowledge_figures(environment: str, episodes_by_policy: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Two plots: what is answered, invented and looked up by how often it was told, and accuracy against coverage and
    probability.
    """
    by_told = [
        Panel(
            "answers, share of questions",
            {name: _build_lines_by_times_told(rows, "answered") for name, rows in episodes_by_policy.items()},
            {},
        ),
        Panel(
            "wrong answers, share of questions",
            {name: _build_wrong_answer_lines(rows) for name, rows in episodes_by_policy.items()},
            {},
        ),
    ]
    if _has_calls(episodes_by_policy):
        by_told.append(
            Panel(
                "calls, a question",
                {name: _build_lines_by_times_told(rows, CALLS) for name, rows in episodes_by_policy.items()},
                {},
            )
        )
    curves = [
        Panel(
            "right, against share answered",
            {name: _build_coverage_lines(rows) for name, rows in episodes_by_policy.items()},
            {},
        ),
        Panel(
            "right, against own probability",
            {name: _build_calibration_lines(rows) for name, rows in episodes_by_policy.items()},
            {},
        ),
    ]
    return {
        f"told-{environment}": plots.render_small_multiples(by_told, "times told", "share", f"told-{environment}"),
        f"knowing-{environment}": plots.render_small_multiples(
            curves, "share", "share of right answers", f"knowing-{environment}"
        ),
    }


def _has_calls(episodes_by_policy: Mapping[str, pd.DataFrame]) -> bool:
    return any(rows[CALLS].any() for rows in episodes_by_policy.values())


def _build_lines_by_times_told(rows: pd.DataFrame, event: str) -> list[Line]:
    means = [seed_rows.groupby("told")[event].mean() for _, seed_rows in rows.groupby("seed")]
    return [([*map(float, curve.index)], [*map(float, curve)]) for curve in means]


def _build_wrong_answer_lines(rows: pd.DataFrame) -> list[Line]:
    return _build_lines_by_times_told(rows.assign(wrong=rows["answered"] - rows["right"]), "wrong")


def _build_coverage_lines(rows: pd.DataFrame) -> list[Line]:
    """Accuracy of the surest answers, as more and more of them are given."""
    lines = []
    for _, seed_rows in rows.groupby("seed"):
        ranked = seed_rows[seed_rows["answered"] > 0].sort_values("probability", ascending=False)
        number = np.arange(1, len(ranked) + 1)
        kept = number > len(seed_rows) / 20  # the first few say nothing
        shares = number / len(seed_rows)
        accuracy = ranked["right"].cumsum().to_numpy() / number
        lines.append((shares[kept].tolist(), accuracy[kept].tolist()))
    return lines


def _build_calibration_lines(rows: pd.DataFrame) -> list[Line]:
    binned = [_bin_by_probability(seed_rows[seed_rows["answered"] > 0]) for _, seed_rows in rows.groupby("seed")]
    return [(seed_bins["predicted"].tolist(), seed_bins["observed"].tolist()) for seed_bins in binned]


def build_knowledge_view(policies: Sequence[PolicyEpisodes]) -> tuple[dict[str, list[KnowledgeRow]], dict[str, str]]:
    """For each environment that counts EVENTS its table, and the plots by name."""
    tables = dict[str, list[KnowledgeRow]]()
    drawn = dict[str, str]()
    for environment in dict.fromkeys(policy.environment for policy in policies):
        answers_by_policy = {
            policy.name: build_answer_table(policy) for policy in policies if policy.environment == environment
        }
        episodes_by_policy = {name: rows for name, rows in answers_by_policy.items() if rows is not None}
        if episodes_by_policy:
            tables[environment] = [
                build_knowledge_row(name, rows, _has_calls(episodes_by_policy))
                for name, rows in episodes_by_policy.items()
            ]
            drawn |= render_knowledge_figures(environment, episodes_by_policy)
    return tables, drawn
