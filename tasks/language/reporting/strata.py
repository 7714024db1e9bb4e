"""A change of accuracy taken apart by strata, the kinds of answers: more answers of the better kind, or better ones of each.

Kitagawa (1955), "Components of a difference between two rates". With a share s of answers inside a stratum, of which a1
are right, and a0 of the others, accuracy is s a1 + (1 - s) a0. Of the difference between two policies
(s - s') (mean a1 - mean a0) is owed to the share, (a1 - a1') mean s and (a0 - a0') (1 - mean s) to accuracy inside and
outside, with means over the two policies. The three add up to the difference.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.common.estimates import Estimate, percentiles, resampled_means

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Stratum:
    """A policy's answers, as shares of all its answers to each problem, (P,) each."""

    inside: Array  # inside the stratum
    right_inside: Array  # inside it and right
    right_outside: Array  # outside it and right


@dataclass(frozen=True)
class Components:
    """A difference of accuracy, and what of it is owed to the share inside, to accuracy inside and to accuracy outside."""

    total: Estimate
    share: Estimate
    inside: Estimate
    outside: Estimate


def components(ours: Stratum, baseline: Stratum, seed: int, resamples: int) -> Components:
    """The difference between two policies on the same problems, taken apart; intervals by paired bootstrap."""
    columns = np.stack([part for marks in (ours, baseline) for part in vars(marks).values()], axis=1)
    values = _components(columns.mean(axis=0, keepdims=True))
    draws = _components(resampled_means(columns, seed, resamples))
    found = [percentiles(float(value[0]), drawn) for value, drawn in zip(values, draws, strict=True)]
    return Components(*found)


def _components(means: Array) -> tuple[Array, Array, Array, Array]:
    """From means over problems (R, 6) of two strata's parts: total, share, inside, outside, each (R,)."""
    s, in_, out, base_s, base_in, base_out = means.T
    a1, base_a1 = _rates(in_, s, base_in, base_s)
    a0, base_a0 = _rates(out, 1 - s, base_out, 1 - base_s)
    share = (s - base_s) * (a1 + base_a1 - a0 - base_a0) / 2
    inside = (a1 - base_a1) * (s + base_s) / 2
    outside = (a0 - base_a0) * (1 - (s + base_s) / 2)
    return in_ + out - base_in - base_out, share, inside, outside


def _rates(right: Array, all_: Array, base_right: Array, base_all: Array) -> tuple[Array, Array]:
    """Both policies' accuracy; one that has no such answers is taken to be as good at them as the other."""
    tiny = 1e-12
    rate, base = (part / np.maximum(whole, tiny) for part, whole in ((right, all_), (base_right, base_all)))
    return np.where(all_ > tiny, rate, base), np.where(base_all > tiny, base, rate)
