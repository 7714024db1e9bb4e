"""What a finite set of samples says about a policy: unbiased estimates, each with a 95 % interval over problems.

Problems are the unit of sampling: a problem's samples are averaged first, so that they are not taken for independent.
Two policies are compared on the same problems, problem by problem: most of what makes a problem hard is then common to
both.

Of a method that was trained with several seeds, a seed is the unit of sampling: its episodes are averaged first, so
that they are not taken for independent trainings. The mean has Student's interval (1908), a difference Welch's (1947).
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

CHANCE = 0.05  # that a 95 % interval misses the truth
Z = 1.959963984540054  # two-sided 95 % quantile of the normal distribution


@dataclass(frozen=True)
class Estimate:
    """A mean over problems and its 95 % interval."""

    mean: float
    low: float
    high: float


def pass_at_k(correct: ArrayLike, samples: int, k: int) -> NDArray[np.float64]:
    """Probability that at least one of k samples is right, for each problem (P,): Chen et al. 2021, eq. 1.

    Unbiased: 1 - C(n - c, k) / C(n, k) with c of n samples right, as a product to stay within range.
    """
    if not 1 <= k <= samples:
        raise ValueError(f"pass@{k} needs at least {k} samples, there are {samples}")
    wrong = samples - np.asarray(correct, dtype=np.int64)
    factors = (wrong[:, None] - np.arange(k)) / (samples - np.arange(k))
    chance: NDArray[np.float64] = 1.0 - np.clip(factors, 0.0, None).prod(axis=1)
    return chance


def majority_vote_accuracy(answers: Sequence[Hashable | None], reference: Hashable) -> float:
    """Whether the commonest answer is the reference: 1 or 0, or the chance of it where several are equally common.

    None stands for no answer and does not vote; with no votes at all the majority is wrong.
    """
    votes = Counter(answer for answer in answers if answer is not None)
    if not votes:
        return 0.0
    most = max(votes.values())
    leaders = [answer for answer, count in votes.items() if count == most]
    return (reference in leaders) / len(leaders)


def best_of_k_accuracy(scores: ArrayLike, correct: ArrayLike) -> NDArray[np.float64]:
    """Whether the answer with the highest score is right, for each problem (P,): best-of-k by a reward model.

    `scores` and `correct` are (P, k). Where several answers share the highest score it is the chance of a right one.
    """
    scores = np.asarray(scores, dtype=np.float64)
    correct = np.asarray(correct, dtype=np.float64)
    leaders = scores == scores.max(axis=1, keepdims=True)
    chance: NDArray[np.float64] = (leaders * correct).sum(axis=1) / leaders.sum(axis=1)
    return chance


@dataclass(frozen=True)
class Changes:
    """On how many problems one policy is right and another is not, both ways, and how likely that is by chance
    (paired.score_p).
    """

    gained: int
    lost: int
    p: float


def compute_win_values(scores: ArrayLike, baseline: ArrayLike) -> NDArray[np.float64]:
    """1 where the score beats the baseline's, 1/2 where they tie, 0 where it loses; any shape, elementwise."""
    difference = np.asarray(scores, dtype=np.float64) - np.asarray(baseline, dtype=np.float64)
    return (np.sign(difference) + 1) / 2


def estimate_share(values: ArrayLike) -> Estimate:
    """Mean of one value in [0, 1] for each problem (P,), with Wilson's score interval (1927).

    For values 0 or 1 it is Wilson's interval. For averages over samples, the number of problems is replaced by the
    number of 0-1 values whose mean has the same variance. Unlike a bootstrap interval it has a width even for 0 of 500.
    """
    values = _convert_to_nonempty_vector(values)
    mean = float(values.mean())
    count = len(values)
    variance = float(values.var())
    effective = count * mean * (1 - mean) / variance if variance > 1e-12 else count
    centre = (mean + Z**2 / (2 * effective)) / (1 + Z**2 / effective)
    half = Z / (1 + Z**2 / effective) * (mean * (1 - mean) / effective + Z**2 / (4 * effective**2)) ** 0.5
    return Estimate(mean, min(mean, max(0.0, centre - half)), max(mean, min(1.0, centre + half)))


def resample_means(values: ArrayLike, seed: int, resamples: int) -> NDArray[np.float64]:
    """Means over problems drawn with replacement: values (P, M) to (resamples, M).

    The columns share their draws, and so do all calls with the same number of problems and the same seed, so that
    differences stay paired.
    """
    values = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(seed)
    count = len(values)
    drawn = [np.bincount(rng.integers(count, size=count), minlength=count) for _ in range(resamples)]
    means: NDArray[np.float64] = np.stack(drawn) @ values / count
    return means


def bootstrap_mean(values: ArrayLike, seed: int, resamples: int) -> Estimate:
    """Mean of one value for each problem (P,), with the percentile bootstrap interval over problems.

    For the differences between two policies, problem by problem, it is the paired interval of the difference of means.
    """
    values = _convert_to_nonempty_vector(values)
    return make_percentile_estimate(float(values.mean()), resample_means(values[:, None], seed, resamples)[:, 0])


def bootstrap_ratio(parts: ArrayLike, wholes: ArrayLike, seed: int, resamples: int) -> Estimate:
    """Sum of `parts` (P,) over the sum of `wholes` (P,), which is above 0, with a bootstrap interval over problems."""
    parts = _convert_to_nonempty_vector(parts)
    wholes = _convert_to_nonempty_vector(wholes)
    means = resample_means(np.stack([parts, wholes], axis=1), seed, resamples)
    means = means[means[:, 1] > 0]  # a draw may hold no whole at all
    return make_percentile_estimate(float(parts.sum() / wholes.sum()), means[:, 0] / means[:, 1])


def make_percentile_estimate(mean: float, draws: NDArray[np.float64]) -> Estimate:
    """A mean with the middle 95 % of its bootstrap draws as interval."""
    low, high = np.quantile(draws, (0.025, 0.975))
    return Estimate(mean, float(low), float(high))


def estimate_mean_over_seeds(values: ArrayLike) -> Estimate:
    """The mean of one value for each seed (S,), with its 95 % interval: without bounds for one seed, no wider than zero
    where all agree.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"one value for each seed is needed, got shape {array.shape}")
    mean = float(array.mean())
    if len(array) == 1:
        return Estimate(mean, -inf, inf)
    half = float(stdtrit(len(array) - 1, 1 - CHANCE / 2)) * float(array.std(ddof=1)) / len(array) ** 0.5
    return Estimate(mean, mean - half, mean + half)


def estimate_welch_difference(ones: ArrayLike, others: ArrayLike) -> Estimate:
    """The mean of `ones` (S,) less that of `others` (T,), with Welch's 95 % interval (1947) for two variances.

    An array of one value is a fact without a spread if the other has several; where neither has, there are no bounds.
    """
    arrays = [np.asarray(values, dtype=np.float64) for values in (ones, others)]
    if any(array.ndim != 1 or not len(array) for array in arrays):
        raise ValueError(f"one value for each seed is needed, got shapes {arrays[0].shape} and {arrays[1].shape}")
    mean = float(arrays[0].mean() - arrays[1].mean())
    several = [array for array in arrays if len(array) > 1]
    if not several:
        return Estimate(mean, -inf, inf)
    squares = np.array([array.var(ddof=1) / len(array) for array in several])
    if not squares.sum():
        return Estimate(mean, mean, mean)
    freedom = squares.sum() ** 2 / (squares**2 / [len(array) - 1 for array in several]).sum()
    half = float(stdtrit(freedom, 1 - CHANCE / 2) * squares.sum() ** 0.5)
    return Estimate(mean, mean - half, mean + half)


def widen_interval_by_games(seeds: Estimate, squared_error: float) -> Estimate:
    """An interval over seeds, widened by what other games would have given, as if both errors were independent.

    `squared_error` is that of the mean over games. Without a spread over seeds (no bounds) only the games are left,
    without one over games (nan) no bounds.
    """
    of_seeds = 0.0 if seeds.low == -inf else seeds.high - seeds.mean
    half = (of_seeds**2 + Z**2 * squared_error) ** 0.5
    return (
        Estimate(seeds.mean, seeds.mean - half, seeds.mean + half) if half == half else Estimate(seeds.mean, -inf, inf)
    )


def _convert_to_nonempty_vector(values: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"one value for each problem is needed, got shape {array.shape}")
    return array
