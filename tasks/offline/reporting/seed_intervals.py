"""What a few seeds say about a method: the mean over them with Student's interval (1908).

A seed is the unit of sampling: its episodes are averaged first, so that they are not taken for independent trainings.
"""

from math import inf

import numpy as np
from numpy.typing import ArrayLike

from tasks.common.estimates import Estimate

# Two-sided 95 % quantiles of Student's distribution, by degrees of freedom from 1 on.
QUANTILES = (12.70620, 4.30265, 3.18245, 2.77645, 2.57058, 2.44691, 2.36462, 2.30600, 2.26216, 2.22814)


def over_seeds(values: ArrayLike) -> Estimate:
    """The mean of one value for each seed (S,), with its 95 % interval: without bounds for one seed, no wider than zero where all agree."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"one value for each seed is needed, got shape {array.shape}")
    mean = float(array.mean())
    if len(array) == 1:
        return Estimate(mean, -inf, inf)
    half = quantile(len(array) - 1) * float(array.std(ddof=1)) / len(array) ** 0.5
    return Estimate(mean, mean - half, mean + half)


def quantile(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's distribution; beyond ten degrees by Fisher's expansion, right to 2e-4."""
    if freedom <= len(QUANTILES):
        return QUANTILES[freedom - 1]
    z = 1.959963984540054
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    beyond: float = sum(term / freedom**power for power, term in enumerate(terms, start=1))
    return z + beyond
