"""95 % intervals of a paired difference that cover it where there are few problems, or few that changed.

The percentile bootstrap does not there: with 50 problems of which 4 % are gained and none is lost it covers the difference in 86 of 100
samples, and where no problem changed it has no width (tests/tasks/common/test_paired_coverage.py measures it).
"""

from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from tasks.common import estimates
from tasks.common.estimates import CHANCE, Changes, Estimate, Z

RESAMPLES, SEED = 4000, 0
HALVINGS = 60  # of the range of a bound, which is then known to 2e-18
SCORE, BOOTSTRAP = "score", "bootstrap"


def right_or_wrong(ours: ArrayLike, theirs: ArrayLike) -> tuple[Estimate, Changes] | None:
    """The difference of the means of two values for each problem, (P,) and (P,), and what changed; None unless all are 0 or 1."""
    values = np.stack([np.asarray(of, dtype=np.float64) for of in (ours, theirs)])
    if not np.isin(values, (0.0, 1.0)).all():
        return None
    changes = estimates.mcnemar(*values)
    return score(changes.gained, changes.lost, values.shape[1]), changes


def score(gained: int, lost: int, count: int) -> Estimate:
    """(gained - lost) / count with Tango's score interval (Statistics in Medicine 17, 1998, eq. 5 and 8).

    It has the differences that the score test does not reject at 5 %. At no difference that test is McNemar's without a
    correction, so the interval leaves 0 out exactly if (gained - lost)^2 / (gained + lost) is above 1.96^2.
    """
    return Estimate((gained - lost) / count, -_upper(lost, gained, count), _upper(gained, lost, count))


def _upper(gained: int, lost: int, count: int) -> float:
    low, high = (gained - lost) / count, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _standing(gained, lost, count, middle) > -Z else (low, middle)
    return high if high > (gained - lost) / count else low


def _standing(gained: int, lost: int, count: int, difference: float) -> float:
    """The score statistic of a supposed difference; the share lost is the likeliest one that has it (Tango's q21)."""
    linear = (2 * count - gained + lost) * difference - gained - lost
    constant = -lost * difference * (1 - difference)
    share = (float(np.sqrt(max(linear**2 - 8 * count * constant, 0.0))) - linear) / (4 * count)
    variance = count * (2 * share + difference * (1 - difference))
    distance = gained - lost - count * difference
    if variance <= 0 or not distance:
        return float(np.copysign(np.inf, distance)) if distance else 0.0
    return distance / float(np.sqrt(variance))


def bootstrap(differences: ArrayLike) -> list[Estimate]:
    """The mean of each column of differences by problem, (P, M), with its bootstrap interval over problems, widened for small samples.

    Percentiles further out make it as wide as Student's, which the plain ones are not: (P - 1) / P is missing from the
    variance, and the quantile is the normal one (Hesterberg, The American Statistician 69, 2015, section 4.2).
    """
    values = np.asarray(differences, dtype=np.float64)
    draws = estimates.resampled_means(values, SEED, RESAMPLES)
    tail = outer_tail(len(values))
    ends: NDArray[np.float64] = np.quantile(draws, (tail, 1 - tail), axis=0)
    return [Estimate(*map(float, of)) for of in zip(values.mean(axis=0), *ends, strict=True)]


def outer_tail(count: int) -> float:
    """The share of the draws beyond each end of the interval: 0.025 of many problems, less of few, none of a single one."""
    if count == 1:
        return 0.0
    quantile = float(stdtrit(count - 1, 1 - CHANCE / 2))
    return NormalDist().cdf(-quantile * (count / (count - 1)) ** 0.5)
