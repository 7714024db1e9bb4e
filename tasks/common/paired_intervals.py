"""95 % intervals of a paired difference that cover it where there are few problems, or few that changed.

The percentile bootstrap does not there: with 50 problems of which 4 % are gained and none is lost it covers the
difference in 86 of 100 samples, and where no problem changed it has no width
(tests/tasks/common/test_paired_coverage.py measures it).

A difference, its interval and its p-value come from one test: p is below the level exactly where the interval leaves 0
out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import erfc, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

from tasks.common import estimates
from tasks.common.estimates import CHANCE, Changes, Estimate

RESAMPLES = 4000
SEED = 0
HALVINGS = 60  # of the range of a bound, which is then known to 2e-18
POWER = 0.8  # with which a difference is called seen
SCORE = "score"
BOOTSTRAP = "bootstrap"


def compare_binary_outcomes(
    ours: ArrayLike, theirs: ArrayLike, chance: float = CHANCE
) -> tuple[Estimate, Changes] | None:
    """The difference of the means of two values for each problem, (P,) and (P,), and what changed; None unless all are
    0 or 1.

    `chance` is that of the interval to miss the difference.
    """
    values = np.stack([np.asarray(outcomes, dtype=np.float64) for outcomes in (ours, theirs)])
    if not np.isin(values, (0.0, 1.0)).all():
        return None
    first, second = values.astype(bool)
    gained = int((first & ~second).sum())
    lost = int((second & ~first).sum())
    return tango_score_interval(gained, lost, values.shape[1], chance), Changes(
        gained, lost, mcnemar_p_value(gained, lost)
    )


def tango_score_interval(gained: int, lost: int, count: int, chance: float = CHANCE) -> Estimate:
    """(gained - lost) / count with Tango's score interval (Statistics in Medicine 17, 1998, eq. 5 and 8).

    It has the differences that the score test does not reject. At no difference that test is `mcnemar_p_value`, so
    that the interval leaves 0 out exactly if `mcnemar_p_value` is below `chance`.
    """
    quantile = NormalDist().inv_cdf(1 - chance / 2)
    low = -_solve_upper_bound(lost, gained, count, quantile)
    high = _solve_upper_bound(gained, lost, count, quantile)
    return Estimate((gained - lost) / count, low, high)


def mcnemar_p_value(gained: int, lost: int) -> float:
    """McNemar's test (1947) without a correction, two-sided: how likely a split at least as uneven is without a
    difference.

    Against the exact test it keeps to its level nearly as well and sees more (Fagerland, Lydersen and Laake, BMC
    Medical Research Methodology 13, 2013, 91).
    """
    return erfc(abs(gained - lost) / sqrt(2 * (gained + lost))) if gained + lost else 1.0


def student_t_interval(differences: ArrayLike, chance: float = CHANCE) -> tuple[Estimate, float]:
    """The mean of one difference for each problem (P,), P at least 2, with Student's interval (1908), and its two-sided
    p.
    """
    values = np.asarray(differences, dtype=np.float64)
    mean = float(values.mean())
    error = float(values.std(ddof=1)) / sqrt(len(values))
    if error <= 1e-12:
        return Estimate(mean, mean, mean), float(abs(mean) <= 1e-12)
    half = float(stdtrit(len(values) - 1, 1 - chance / 2)) * error
    return Estimate(mean, mean - half, mean + half), 2 * float(stdtr(len(values) - 1, -abs(mean) / error))


@dataclass(frozen=True)
class Holm:
    """Several tests corrected for their number: adjusted p-values, and the level at which all of their intervals agree
    with them.
    """

    p: list[float]
    chance: float


def holm_correction(p: Sequence[float]) -> Holm:
    """Holm's step-down procedure (1979) at CHANCE: with it a true hypothesis among all is rejected with a probability
    of at most CHANCE.

    An interval at the level `chance`, at which the procedure stopped, leaves 0 out exactly where the adjusted p is
    below CHANCE. For what is not rejected these intervals hold all at once (Strassburger and Bretz, Statistics in
    Medicine 27, 2008); for what is rejected no more than that is corrected, and the ends of its interval hold one by
    one.
    """
    adjusted = [1.0] * len(p)
    highest = 0.0
    rejected = 0
    for rank, index in enumerate(sorted(range(len(p)), key=lambda index: p[index])):
        highest = max(highest, min(1.0, (len(p) - rank) * p[index]))
        adjusted[index] = highest
        rejected += highest < CHANCE
    return Holm(adjusted, CHANCE / max(1, len(p) - rejected))


def smallest_detectable_difference(changed: float, count: int, chance: float = CHANCE) -> float:
    """The difference that `mcnemar_p_value` finds with probability POWER on `count` problems of which the share
    `changed` changes.

    Connor (Biometrics 43, 1987), solved for the difference d: sqrt(count) d = z_(1 - chance / 2) sqrt(changed)
    + z_POWER sqrt(changed - d^2). It is at most `changed`, where all changes go one way.
    """
    rejects = NormalDist().inv_cdf(1 - chance / 2)
    sees = NormalDist().inv_cdf(POWER)
    low = 0.0
    high = changed
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = sqrt(count) * middle > rejects * sqrt(changed) + sees * sqrt(changed - middle**2)
        low, high = (low, middle) if enough else (middle, high)
    return high


def _solve_upper_bound(gained: int, lost: int, count: int, quantile: float) -> float:
    low = (gained - lost) / count
    high = 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _score_statistic(gained, lost, count, middle) > -quantile else (low, middle)
    return high if high > (gained - lost) / count else low


def _score_statistic(gained: int, lost: int, count: int, difference: float) -> float:
    """The score statistic of a supposed difference; the share lost is the likeliest one that has it (Tango's q21)."""
    linear = (2 * count - gained + lost) * difference - gained - lost
    constant = -lost * difference * (1 - difference)
    share = (float(np.sqrt(max(linear**2 - 8 * count * constant, 0.0))) - linear) / (4 * count)
    variance = count * (2 * share + difference * (1 - difference))
    distance = gained - lost - count * difference
    if variance <= 0 or not distance:
        return float(np.copysign(np.inf, distance)) if distance else 0.0
    return distance / float(np.sqrt(variance))


def bootstrap_mean_differences(differences: ArrayLike) -> list[Estimate]:
    """The mean of each column of differences by problem, (P, M), with its bootstrap interval over problems, widened for
    small samples.

    Percentiles further out make it as wide as Student's, which the plain ones are not: (P - 1) / P is missing from the
    variance, and the quantile is the normal one (Hesterberg, The American Statistician 69, 2015, section 4.2).
    """
    values = np.asarray(differences, dtype=np.float64)
    draws = estimates.resample_means(values, SEED, RESAMPLES)
    tail = compute_tail_share(len(values))
    ends: NDArray[np.float64] = np.quantile(draws, (tail, 1 - tail), axis=0)
    return [Estimate(*map(float, interval)) for interval in zip(values.mean(axis=0), *ends, strict=True)]


def compute_tail_share(count: int) -> float:
    """The share of the draws beyond each end of the interval: 0.025 of many problems, less of few, none of a single
    one.
    """
    if count == 1:
        return 0.0
    quantile = float(stdtrit(count - 1, 1 - CHANCE / 2))
    return NormalDist().cdf(-quantile * (count / (count - 1)) ** 0.5)
