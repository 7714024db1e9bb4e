"""What is measured of the answers to a suite: one value for each problem and metric, and means with 95 % intervals.

Metrics are called as those of the stage `evaluate`: right_greedy, right_mean_at_8_t0.6, right_pass_at_4_t0.6,
right_majority_at_8_t0.6.
"""

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from tasks.common import estimates
from tasks.common.estimates import Estimate
from tasks.extensions.suites.extraction import REWARD
from tasks.extensions.suites.scoring import LENGTH_NORMALISED
from tasks.extensions.suites.suite import Suite
from tasks.language.reporting.measures import format_temperature_suffix
from tasks.language.rewards.numerals import parse_number_or_none

BY_REWARD = "right_greedy_by_reward"
GREEDY = "right_greedy"
NORMALISED = "right_greedy_normalised"
ENDED = "ended_greedy"
FOUND = "extracted_greedy"
LATE = "timed_out_greedy"
MEAN = "right_mean_at_"
RIGHT_ANSWER = object()  # whatever its form
METRICS = {
    GREEDY: "The share of the problems whose greedy answer is right by the suite's convention; by likelihood: "
    "whose likeliest choice is right (lm-evaluation-harness's acc).",
    NORMALISED: "The share of the problems whose choice with the highest log-likelihood a character is right "
    "(acc_norm); of suites by likelihood.",
    BY_REWARD: "The share of the problems whose greedy answer is right by the verifiable reward, which may differ "
    "from the suite's convention; of suites of mathematics.",
    "right_mean_at_K_T": "The share of the K answers to a problem that are right, a mean over problems.",
    "right_pass_at_K_T": "The probability that at least one of K answers is right (unbiased estimate).",
    "right_majority_at_K_T": "The share of the problems where the commonest of K answers is right; a "
    "tie counts by chance.",
    ENDED: "Of the greedy answers, the share that the end token closed within the length limit.",
    LATE: "Of the greedy answers, the share whose formula took too long to judge, or ended the process that judges "
    "it; they count as wrong.",
    FOUND: "Of the greedy answers, the share in which the suite's method of extraction finds an answer.",
}


def compute_problem_metrics(answers: pd.DataFrame, pass_at: Sequence[int]) -> pd.DataFrame:
    """One row for each problem by its id, one column for each metric."""
    greedy = answers[answers["temperature"] == 0].set_index("problem_id")
    values: dict[str, pd.Series] = {GREEDY: greedy["right"]}
    others = greedy["by_method"].map(json.loads)
    if others.map(lambda by_method: LENGTH_NORMALISED in by_method).all():
        values[NORMALISED] = others.map(lambda by_method: by_method[LENGTH_NORMALISED])
    else:
        if others.map(lambda by_method: REWARD in by_method).all():
            values[BY_REWARD] = others.map(lambda by_method: by_method[REWARD])
        values |= {ENDED: greedy["ended"], FOUND: greedy["extracted"] != ""}
        values |= {LATE: greedy["timed_out"]} if "timed_out" in greedy else {}
    for temperature, sampled in answers[answers["temperature"] > 0].groupby("temperature"):
        values |= _compute_sampled_metrics(sampled, format_temperature_suffix(float(str(temperature))), pass_at)
    return pd.DataFrame(values).astype(float).sort_index()


def _compute_sampled_metrics(sampled: pd.DataFrame, how: str, pass_at: Sequence[int]) -> dict[str, pd.Series]:
    problems = sampled.groupby("problem_id")
    k = int(problems.size().iloc[0])
    right = problems["right"].sum()
    metrics = {f"{MEAN}{k}_{how}": problems["right"].mean()}
    for at in pass_at:
        if at <= k:
            metrics[f"right_pass_at_{at}_{how}"] = pd.Series(estimates.pass_at_k(right, k, at), right.index)
    voted = {problem_id: _compute_majority_accuracy(problem_answers) for problem_id, problem_answers in problems}
    return {**metrics, f"right_majority_at_{k}_{how}": pd.Series(voted)}


def _compute_majority_accuracy(drawn: pd.DataFrame) -> float:
    """Whether the commonest answer is right: right ones are one answer, wrong ones if they are one number or one
    text.
    """
    votes: list[object] = []
    for text, right in zip(drawn["extracted"], drawn["right"], strict=True):
        votes.append(RIGHT_ANSWER if right else _parse_vote(text))
    return estimates.majority_vote_accuracy(votes, RIGHT_ANSWER)


def _parse_vote(text: str) -> object:
    value = parse_number_or_none(text)
    return value if value is not None else text or None


def estimate_metric_means(values: pd.DataFrame) -> dict[str, Estimate]:
    """Every metric's mean over problems with Wilson's interval."""
    return {str(name): estimates.estimate_share(values[name]) for name in values}


def select_headline_metric(suite: Suite, metrics: Mapping[str, object]) -> str:
    """The metric of the suite that stands in a table with others: the mean over samples where that is its convention
    and there are any.
    """
    means = [name for name in metrics if name.startswith(MEAN)]
    return means[0] if suite.headline == "mean" and means else GREEDY


def estimate_means_by_group(problems: pd.DataFrame, values: pd.Series, column: str) -> dict[str, Estimate]:
    """The mean of a metric by level or subject, where there are several."""
    kinds = problems.set_index("problem_id")[column]
    if kinds.nunique() < 2:
        return {}
    return {str(kind): estimates.estimate_share(values.loc[group.index]) for kind, group in kinds.groupby(kinds)}


def compute_extraction_method_shares(answers: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Of each method of extraction: the share of the greedy answers that are right by it, and on which it agrees with
    the suite's own.
    """
    greedy = answers[(answers["temperature"] == 0) & (answers["by_method"] != "")]
    methods = pd.DataFrame([json.loads(verdicts_json) for verdicts_json in greedy["by_method"]], index=greedy.index)
    suite_right = greedy["right"].to_numpy()
    return {str(name): (float(methods[name].mean()), float(np.mean(methods[name] == suite_right))) for name in methods}
