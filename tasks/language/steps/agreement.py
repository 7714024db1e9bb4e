"""How far labels of steps agree with what the worked steps of the reference say."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.language.rewards.step_labels import BAD

METRICS = {
    "against_truth/labels": "The share of the steps that are labelled bad exactly where the worked steps say so.",
    "against_truth/first_wrong": "The share of the solutions whose first bad step is that of the worked steps, or "
    "that have none by both.",
    "against_truth/half_right": "The share of the steps of which at least half of the roll-outs are right exactly "
    "where the worked steps say that they are not bad: the soft estimate.",
    "against_truth/auc": "The share of pairs of a bad and another step, by the worked steps, in which the other "
    "one has more right roll-outs; a tie counts half. Only where there are both kinds.",
}
Labels = Sequence[Sequence[int]]


def compute_label_agreement(
    labels: Labels, truth: Labels, shares: Sequence[Sequence[float]] | None
) -> dict[str, float]:
    """METRICS of solutions; the last two only with the `shares` of right roll-outs."""
    labelled_bad = _flag_bad_steps(labels)
    true = _flag_bad_steps(truth)
    metrics = {
        "labels": float((labelled_bad == true).mean()),
        "first_wrong": float(
            np.mean([_find_first_bad_step(a) == _find_first_bad_step(b) for a, b in zip(labels, truth, strict=True)])
        ),
    }
    if shares is not None:
        share = np.concatenate([np.asarray(some, dtype=float) for some in shares])
        metrics["half_right"] = float(((share < 0.5) == true).mean())
        if 0 < true.sum() < len(true):
            metrics["auc"] = _compute_auc_of_samples(share[~true], share[true])
    return metrics


def _flag_bad_steps(labels: Labels) -> NDArray[np.bool_]:
    return np.concatenate([np.asarray(some) == BAD for some in labels])


def _find_first_bad_step(labels: Sequence[int]) -> int:
    return [*labels, BAD].index(BAD)


def _compute_auc_of_samples(higher: NDArray[np.float64], lower: NDArray[np.float64]) -> float:
    ordered = np.sort(lower)
    below, up_to = (np.searchsorted(ordered, higher, side=side) for side in ("left", "right"))
    return float((below + up_to).mean() / 2 / len(lower))
