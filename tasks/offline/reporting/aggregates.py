"""What several data sets say together about a method, from few seeds of each (Agarwal et al. 2021, arXiv:2108.13264).

Scores are normalised, so that data sets can be put together: `Scores` has an array of seeds (S,) for each data set.
Intervals are percentiles over stratified bootstrap resamples, in which each data set's seeds are drawn anew from its
own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasks.common.estimates import Estimate
from tasks.offline.datasets.normalized_score import ScoreReference
from tasks.offline.reporting.measurements import Description
from tasks.offline.reporting.results import VariantResult

Array = NDArray[np.float64]
Scores = Mapping[str, Array]  # by data set
Statistic = Callable[[Sequence[Array]], float]  # of the scores of each data set
RESAMPLES = 2000
SEED = 0
SIZE = 0.95
BESIDE = "BC"  # the variant that others stand beside, where it is measured
LEVELS = 101  # of a profile


@dataclass(frozen=True)
class Aggregate:
    """One variant over several data sets, beside another one."""

    variant: str
    iqm: Estimate
    mean: Estimate
    improvement: (
        Estimate | None
    )  # the chance that a seed of it scores higher than one of the variant beside it; None: it is that one


@dataclass(frozen=True)
class Together:
    """The variants that were measured on the same data sets, with two seeds or more each."""

    datasets: Sequence[str]
    beside: str
    rows: Sequence[Aggregate]
    levels: Array  # (L,) scores
    profiles: Mapping[str, Array]  # by variant: the share of runs above each level, (L,)


def aggregate_over_datasets(first: Sequence[VariantResult], data: Mapping[str, Description]) -> list[Together]:
    """The data sets on which the same variants were measured, two or more of each; `first` has a result for each
    variant and data set.
    """
    scores: dict[str, dict[str, Array]] = {}  # data set -> variant -> seeds
    for outcome in first:
        score = ScoreReference(**data[outcome.dataset]["reference"]).score
        scores.setdefault(outcome.dataset, {})[outcome.variant] = np.array([score(value) for value in outcome.returns])
    groups: dict[frozenset[str], list[str]] = {}
    for dataset, by_variant in scores.items():
        if all(len(seed_scores) > 1 for seed_scores in by_variant.values()):
            groups.setdefault(frozenset(by_variant), []).append(dataset)
    return [
        _aggregate_dataset_group(
            {variant: {name: scores[name][variant] for name in names} for variant in scores[names[0]]}, names
        )
        for variants, names in groups.items()
        if len(variants) > 1 and len(names) > 1
    ]


def _aggregate_dataset_group(scores_by_variant: Mapping[str, Scores], datasets: Sequence[str]) -> Together:
    beside = BESIDE if BESIDE in scores_by_variant else next(iter(scores_by_variant))
    every = np.concatenate(
        [seed_scores for by_dataset in scores_by_variant.values() for seed_scores in by_dataset.values()]
    )
    levels = np.linspace(every.min(), every.max(), LEVELS)
    profiles = {
        variant: compute_performance_profile([*by_dataset.values()], levels)
        for variant, by_dataset in scores_by_variant.items()
    }
    return Together(datasets, beside, aggregate_variants(scores_by_variant, beside), levels, profiles)


def interquartile_mean(scores: Sequence[Array]) -> float:
    """The mean of the middle half of all scores: a quarter, rounded down, is left out at each end."""
    every = np.sort(np.concatenate(scores))
    cut = len(every) // 4
    return float(every[cut : len(every) - cut].mean())


def compute_mean_over_datasets(scores: Sequence[Array]) -> float:
    """The mean over data sets of the means over seeds."""
    return float(np.mean([seed_scores.mean() for seed_scores in scores]))


def probability_of_improvement(ones: Sequence[Array], others: Sequence[Array]) -> float:
    """The probability that a seed of the one scores higher than a seed of the other, a mean over data sets; a tie
    counts half.
    """
    chances = [
        (np.greater.outer(seed_scores, other) + 0.5 * np.equal.outer(seed_scores, other)).mean()
        for seed_scores, other in zip(ones, others, strict=True)
    ]
    return float(np.mean(chances))


def compute_performance_profile(scores: Sequence[Array], levels: ArrayLike) -> Array:
    """The share of all runs that score higher than each level: (L,) to (L,)."""
    shares: Array = np.greater.outer(np.concatenate(scores), np.asarray(levels)).mean(0)
    return shares


def bootstrap_statistic(statistic: Statistic, scores: Sequence[Array], generator: np.random.Generator) -> Estimate:
    """A statistic of these scores with its 95 % interval."""
    values = [statistic(_resample_seeds(scores, generator)) for _ in range(RESAMPLES)]
    return _build_percentile_estimate(statistic(scores), values)


def aggregate_variants(scores_by_variant: Mapping[str, Scores], beside: str) -> list[Aggregate]:
    """Each variant over the data sets of `beside`, one of the variants; all of them have scores on all of those."""
    generator = np.random.default_rng(SEED)
    names = list(scores_by_variant[beside])
    base = [scores_by_variant[beside][name] for name in names]
    rows = []
    for variant, by_dataset in scores_by_variant.items():
        variant_scores = [by_dataset[name] for name in names]
        chance = None
        if variant != beside:
            drawn = [
                probability_of_improvement(_resample_seeds(variant_scores, generator), _resample_seeds(base, generator))
                for _ in range(RESAMPLES)
            ]
            chance = _build_percentile_estimate(probability_of_improvement(variant_scores, base), drawn)
        rows.append(
            Aggregate(
                variant,
                bootstrap_statistic(interquartile_mean, variant_scores, generator),
                bootstrap_statistic(compute_mean_over_datasets, variant_scores, generator),
                chance,
            )
        )
    return rows


def _resample_seeds(scores: Sequence[Array], generator: np.random.Generator) -> list[Array]:
    return [seed_scores[generator.integers(len(seed_scores), size=len(seed_scores))] for seed_scores in scores]


def _build_percentile_estimate(value: float, resampled: Sequence[float]) -> Estimate:
    low, high = np.quantile(resampled, [(1 - SIZE) / 2, (1 + SIZE) / 2])
    return Estimate(value, float(low), float(high))
