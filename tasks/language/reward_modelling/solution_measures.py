"""How well rewards tell right solutions from wrong ones, and good steps from bad ones; from what a model says of
held-out solutions.

Steps are held against `truth` where the table has it, else against `labels`. A step counts as found bad where the
probability that it is not bad is below one half.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tasks.algorithms.language.step_rewards import CLASSES
from tasks.stage import Metrics

BEFORE = {  # measured before training too
    "auc": "The area under the ROC curve of the rewards of held-out answers: the chance that a right one has a "
    "higher reward than a wrong one; a tie counts half.",
    "best_of/reward": "The share of the held-out prompts whose answer of the highest reward is right; equal "
    "rewards share.",
    "best_of/chance": "The mean over held-out prompts of the share of right answers: what an answer picked at "
    "random reaches.",
    "best_of/possible": "The share of the held-out prompts with a right answer, which the best choice would find.",
    "first_error/wrong": "Of held-out solutions with a bad step: the share whose first bad step is the first that "
    "is found bad (ProcessBench, arXiv:2412.06559).",
    "first_error/right": "Of held-out solutions without a bad step: the share in which none is found bad.",
    "first_error/f1": "The harmonic mean of `first_error/wrong` and `first_error/right`.",
}
METRICS = {
    "right": "The share of the held-out answers that are right.",
    "brier": "The mean square of the difference between the probability and what was so, 0 or 1: of answers being "
    "right (outcome) or of steps not being bad (process).",
    "by_class/CLASS": "The share of the held-out steps of this class whose likeliest class it is.",
}
CALIBRATION = {  # beside those of reward_model_checks.CALIBRATION
    "labels": "The number of held-out answers (outcome) or steps (process) in the bin; `predicted` and `observed` "
    "are then of answers being right, or of steps not being bad.",
}
Numbers = NDArray[np.float64]


def compute_solution_measures(held_out: pd.DataFrame) -> Metrics:
    """BEFORE and METRICS of held-out solutions (schema HeldOut); one that nothing can be said of is left out."""
    right = held_out["right"].to_numpy(dtype=bool)
    rewards = held_out["reward"].to_numpy(dtype=np.float64)
    predicted, observed = _get_predicted_and_observed(held_out)
    measured: dict[str, float | Metrics] = {"right": float(right.mean())}
    if 0 < right.sum() < len(right):
        measured["auc"] = area_under_roc(rewards, right)
    measured["brier"] = float(((predicted - observed) ** 2).mean())
    measured["best_of"] = compute_best_of_shares(held_out)
    if "bad" in held_out:
        measured["by_class"] = _compute_class_accuracies(held_out)
        measured["first_error"] = compute_first_error_accuracies(
            [1 - np.asarray(steps) for steps in held_out["bad"]],
            [np.asarray(labels) for labels in _get_true_step_labels(held_out)],
        )
    return measured


def area_under_roc(scores: Numbers, positive: NDArray[np.bool_]) -> float:
    """The share of pairs of a positive and a negative whose positive scores higher, a tie counting half; from scores
    (N,).
    """
    ranks = pd.Series(scores).rank().to_numpy()  # ties share their mean rank
    count = int(positive.sum())
    above = ranks[positive].sum() - count * (count + 1) / 2
    return float(above / (count * (len(scores) - count)))


def compute_best_of_shares(held_out: pd.DataFrame) -> Metrics:
    """The `best_of` measures: one answer of each prompt is picked by its reward."""
    groups = [group for _, group in held_out.groupby("prompt_id", sort=False)]
    picked = [group.loc[group["reward"] == group["reward"].max(), "right"].mean() for group in groups]
    return {
        "reward": float(np.mean(picked)),
        "chance": float(np.mean([group["right"].mean() for group in groups])),
        "possible": float(np.mean([group["right"].any() for group in groups])),
    }


def compute_first_error_accuracies(not_bad: Sequence[Numbers], truth: Sequence[NDArray[np.int_]]) -> Metrics:
    """ProcessBench's accuracies and their harmonic mean, from each step's probability of not being bad and its true
    label.
    """
    predicted = [_find_first_bad_index(steps < 0.5) for steps in not_bad]
    actual = [_find_first_bad_index(labels < 0) for labels in truth]
    accuracies: dict[str, float] = {}
    for name, clean in (("wrong", False), ("right", True)):
        hits = [
            guess == true_step
            for guess, true_step in zip(predicted, actual, strict=True)
            if (true_step is None) == clean
        ]
        if hits:
            accuracies[name] = float(np.mean(hits))
    if len(accuracies) == 2:
        wrong = accuracies["wrong"]
        right = accuracies["right"]
        accuracies["f1"] = 2 * wrong * right / (wrong + right) if wrong + right else 0.0
    return accuracies


def compute_solution_calibration(held_out: pd.DataFrame, bins: int) -> list[dict[str, float]]:
    """Predicted against observed: of answers being right, or of steps not being bad, in `bins` of equal count."""
    predicted, observed = _get_predicted_and_observed(held_out)
    parts = np.array_split(np.argsort(predicted, kind="stable"), min(bins, len(predicted)))
    return [
        {
            "predicted": float(predicted[part].mean()),
            "observed": float(observed[part].mean()),
            "labels": float(len(part)),
        }
        for part in parts
    ]


def _get_predicted_and_observed(held_out: pd.DataFrame) -> tuple[Numbers, Numbers]:
    """What is predicted, and what was so: of answers, or of steps where their probabilities are there."""
    if "bad" not in held_out:
        return held_out["reward"].to_numpy(dtype=np.float64), held_out["right"].to_numpy(dtype=np.float64)
    return 1 - np.concatenate([*held_out["bad"]]), (np.concatenate(_get_true_step_labels(held_out)) >= 0).astype(
        np.float64
    )


def _get_true_step_labels(held_out: pd.DataFrame) -> list[list[int]]:
    return [[*labels] for labels in held_out["truth" if "truth" in held_out else "labels"]]


def _compute_class_accuracies(held_out: pd.DataFrame) -> Metrics:
    likeliest = np.stack([np.concatenate([*held_out[name]]) for name in CLASSES]).argmax(axis=0)
    true_classes = np.concatenate(_get_true_step_labels(held_out)) + 1
    return {
        name: float((likeliest[true_classes == number] == number).mean())
        for number, name in enumerate(CLASSES)
        if (true_classes == number).any()
    }


def _find_first_bad_index(bad: NDArray[np.bool_]) -> int | None:
    return int(bad.argmax()) if bad.any() else None
