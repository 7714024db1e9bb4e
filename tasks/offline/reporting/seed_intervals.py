"""What a few seeds say about a method: the mean over them with Student's interval (1908).

A seed is the unit of sampling: its episodes are averaged first, so that they are not taken for independent trainings.
"""

from math import inf

import numpy as np
from numpy.typing import ArrayLike

from tasks.common.estimates import Estimate, student_quantile


def over_seeds(values: ArrayLike) -> Estimate:
    """The mean of one value for each seed (S,), with its 95 % interval: without bounds for one seed, no wider than zero where all agree."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"one value for each seed is needed, got shape {array.shape}")
    mean = float(array.mean())
    if len(array) == 1:
        return Estimate(mean, -inf, inf)
    half = student_quantile(len(array) - 1) * float(array.std(ddof=1)) / len(array) ** 0.5
    return Estimate(mean, mean - half, mean + half)
