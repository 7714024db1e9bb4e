"""How far people agree: Krippendorff's alpha, 1 for perfect agreement, 0 for what chance would give, below 0 for less
than that.

Krippendorff, "Computing Krippendorff's alpha-reliability" (2011): alpha = 1 - D_o / D_e, where the observed
disagreement D_o is the mean squared distance between two values that one unit got, each unit with m values giving m (m
- 1) pairs of weight 1 / (m - 1), and the expected one D_e that between any two values of all units. Who left a unit out
has no value there; units with one value do not count.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Level = Literal["nominal", "ordinal", "interval"]
LEVELS: tuple[Level, ...] = ("nominal", "ordinal", "interval")  # which distances between values mean something
Units = Mapping[Hashable, Mapping[str, float]]  # by unit, the value that each person gave


@dataclass(frozen=True)
class _Counts:
    """The units with two values or more: how often each got each value (U, V), and the values (V,), smallest first."""

    counts: NDArray[np.float64]
    values: NDArray[np.float64]
    units: list[Mapping[str, float]]


def krippendorff_alpha(units: Units, level: Level) -> float | None:
    """Krippendorff's alpha; None where it is not defined: no unit with two values, or no two values that differ."""
    tally = _count_unit_values(units)
    if tally is None:
        return None
    between = 1 / (tally.counts.sum(axis=1, keepdims=True) - 1)
    pairs = (tally.counts * between).T @ tally.counts - np.diag((tally.counts * between).sum(axis=0))
    return _compute_alpha(pairs, tally, level)


def krippendorff_alpha_by_person(units: Units, level: Level) -> dict[str, float | None]:
    """For each person alpha with D_o over the pairs in which one value is the person's: how far the others agree with
    that person.
    """
    tally = _count_unit_values(units)
    people = sorted({person for unit in units.values() for person in unit})
    if tally is None:
        return dict.fromkeys(people)
    columns = {value: index for index, value in enumerate(tally.values.tolist())}
    pairs = {person: np.zeros((len(columns), len(columns))) for person in people}
    for counts, unit in zip(tally.counts, tally.units, strict=True):
        for person, value in unit.items():
            row = pairs[person][columns[value]]
            row += counts / (counts.sum() - 1)
            row[columns[value]] -= 1 / (counts.sum() - 1)
    return {person: _compute_alpha(pairs[person], tally, level) if pairs[person].any() else None for person in people}


def _count_unit_values(units: Units) -> _Counts | None:
    several = [unit for unit in units.values() if len(unit) > 1]
    if not several:
        return None
    numbers = np.repeat(np.arange(len(several)), [*map(len, several)])
    flat_values = np.array([value for unit in several for value in unit.values()], dtype=np.float64)
    values, columns = np.unique(flat_values, return_inverse=True)
    counts = np.zeros((len(several), len(values)))
    np.add.at(counts, (numbers, columns), 1.0)
    return _Counts(counts, values, several) if len(values) > 1 else None


def _compute_alpha(pairs: NDArray[np.float64], tally: _Counts, level: Level) -> float:
    """From the weight of each pair of values (V, V) within units."""
    totals = tally.counts.sum(axis=0)
    distance = _compute_squared_distances(tally.values, totals, level)
    observed = (pairs * distance).sum() / pairs.sum()
    expected = totals @ distance @ totals / (totals.sum() * (totals.sum() - 1))
    return float(1 - observed / expected)


def _compute_squared_distances(
    values: NDArray[np.float64], totals: NDArray[np.float64], level: Level
) -> NDArray[np.float64]:
    """Between any two values (V, V): 0 or 1; the number of given values between them, half of either's own; or their
    difference.
    """
    if level == "nominal":
        return 1 - np.eye(len(values))
    positions = totals.cumsum() - totals / 2 if level == "ordinal" else values
    squared: NDArray[np.float64] = (positions[:, None] - positions[None, :]) ** 2
    return squared


def build_agreement_units(rows: Sequence[Sequence[float | None]]) -> Units:
    """Units from a row for each person and a column for each unit, as published examples have it; None is a gap."""
    columns = range(max(map(len, rows), default=0))
    return {
        unit: {str(person): value for person, row in enumerate(rows) if (value := row[unit]) is not None}
        for unit in columns
    }
