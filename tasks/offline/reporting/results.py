"""From measured episodes to the rows and sentences of the offline report: who earned what.

All intervals are over seeds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite, isnan
from typing import Literal, cast

import numpy as np
import pandas as pd

from tasks.common.errors import DataError
from tasks.common.estimates import Estimate, estimate_mean_over_seeds
from tasks.offline.datasets.normalized_score import ScoreReference
from tasks.offline.reporting.measurements import Description, Ends, ReturnScores
from tasks.offline.reporting.tables import CLAIMED, FITTED

# the data's own returns, beside the methods
MEAN = "data mean"
BEST = "data best"
Unit = Literal["reference", "d4rl"]  # which two returns a score is measured between
# the policy that recorded the data, without its random draws: the yardstick for learning from that data
GREEDY = "greedy behaviour"


@dataclass(frozen=True)
class VariantResult:
    """One variant of a method on one data set, asked for one return if it can be asked; by seed, undiscounted."""

    policy: str
    dataset: str
    environment: str
    variant: str
    target: float  # NaN: cannot be asked
    first: bool  # whether this target stands in the tables: the first of the policy's, not the best
    returns: tuple[float, ...]  # mean of each seed

    @property
    def estimate(self) -> Estimate:
        """The return, with its interval."""
        return estimate_mean_over_seeds(self.returns)

    @property
    def has_target(self) -> bool:
        """Whether it has targets."""
        return not isnan(self.target)

    @property
    def label(self) -> str:
        """The variant's name, with the target where there is one."""
        return _format_variant_label(self.variant, self.target)


def build_variant_results(measured: Iterable[ReturnScores]) -> list[VariantResult]:
    """Every variant and target of every policy, in the order given."""
    outcomes = []
    for scores in measured:
        described = scores.description
        seen = set[str]()
        for variant, target, episodes in _group_by_variant_and_target(scores.episodes):
            returns = tuple(episodes.groupby("seed", sort=False)["total"].mean())
            first = variant not in seen
            seen.add(variant)
            identity = (scores.name, described["dataset"], described["environment"])
            outcomes.append(VariantResult(*identity, variant, target, first, returns))
    twice = pd.Series([(outcome.dataset, outcome.variant) for outcome in outcomes if outcome.first]).value_counts()
    if (twice > 1).any():
        dataset, variant = twice.index[0]
        raise DataError(f"{dataset}: two methods have a variant named {variant}; variants need names of their own")
    return outcomes


def _group_by_variant_and_target(frame: pd.DataFrame) -> Iterator[tuple[str, float, pd.DataFrame]]:
    """The rows of each variant and target, in the order in which they were measured."""
    for key, group in frame.groupby(["variant", "target"], dropna=False, sort=False):
        variant, target = cast(tuple[str, float], key)
        yield variant, target, group


def _format_variant_label(variant: str, target: float) -> str:
    return variant if isnan(target) else f"{variant} asked for {format_exact_number(target)}"


def convert_return_to_score(estimate: Estimate, reference: Ends) -> Estimate:
    """A return as a normalised score."""
    score = ScoreReference(**reference).score
    return Estimate(score(estimate.mean), score(estimate.low), score(estimate.high))


def compare_intervals(estimate: Estimate, other: Estimate) -> int:
    """1 where the one lies wholly above the other, -1 wholly below, 0 where they overlap."""
    return (estimate.low > other.high) - (estimate.high < other.low)


@dataclass(frozen=True)
class ResultCell:
    """A number as a table shows it; `best`: clearly above all others in its row."""

    text: str = ""
    interval: str = ""
    best: bool = False


@dataclass(frozen=True)
class ResultsTable:
    """One row for each data set: its own mean and best, then the variants."""

    title: str
    note: str
    columns: list[str]
    rows: list[tuple[str, list[ResultCell]]]


def build_results_table(
    title: str, note: str, outcomes: Sequence[VariantResult], data: Mapping[str, Description], reference: Unit | None
) -> ResultsTable:
    """Returns, or scores by the `reference` of that name in each description; data sets without it are left out.

    `data` has a description for each data set, and `outcomes` the results that are shown (one a variant).
    """
    shown = [dataset for dataset, described in data.items() if not reference or described[reference]]
    variants = list(dict.fromkeys(outcome.variant for outcome in outcomes if outcome.dataset in shown))
    fact_names = [
        MEAN,
        BEST,
        *([GREEDY] if any(GREEDY in get_dataset_returns(data[dataset]) for dataset in shown) else []),
    ]
    rows = []
    for dataset in shown:
        described = data[dataset]
        between = described[reference] if reference else None
        unit = partial(convert_return_to_score, reference=between) if between else lambda estimate: estimate
        estimates = {outcome.variant: unit(outcome.estimate) for outcome in outcomes if outcome.dataset == dataset}
        fact_means = {name: unit(estimate).mean for name, estimate in get_dataset_returns(described).items()}
        cells = [
            ResultCell(format_rounded_number(fact_means[name]) if name in fact_means else "") for name in fact_names
        ]
        for variant in variants:
            others = [other for name, other in estimates.items() if name != variant]
            cells.append(_build_result_cell(estimates[variant], others) if variant in estimates else ResultCell())
        rows.append((dataset, cells))
    return ResultsTable(title, note, [*fact_names, *variants], rows)


def get_dataset_returns(described: Description) -> dict[str, Estimate]:
    """The returns that a data set has before anything is learned from it, by name and without an interval."""
    data_returns = described["data"]
    behaviour = described["behaviour"]
    values = {MEAN: data_returns["mean"], BEST: data_returns["best"]} | (
        {GREEDY: behaviour["return"]} if behaviour else {}
    )
    return {name: Estimate(value, value, value) for name, value in values.items()}


def _build_result_cell(estimate: Estimate, others: Sequence[Estimate]) -> ResultCell:
    best = bool(others) and all(compare_intervals(estimate, other) == 1 for other in others)
    return ResultCell(format_rounded_number(estimate.mean), format_half_width(estimate), best)


def format_rounded_number(value: float) -> str:
    """About three digits, as people read them; a true minus sign, no negative zero."""
    digits = 0 if abs(value) >= 99.95 else 1
    return f"{round(value, digits) + 0.0:,.{digits}f}".replace("-", "\N{MINUS SIGN}")


def format_exact_number(value: float) -> str:
    """A number that somebody chose, as they wrote it."""
    return f"{value:,g}".replace("-", "\N{MINUS SIGN}")


def format_half_width(estimate: Estimate) -> str:
    """Half its width: over seeds it is symmetric."""
    return f"± {format_rounded_number(estimate.high - estimate.mean)}" if isfinite(estimate.low) else "one seed"


def format_interval_bounds(estimate: Estimate) -> str:
    """Its interval, which need not be symmetric."""
    return f"{format_rounded_number(estimate.low)} to {format_rounded_number(estimate.high)}"


def format_stitching_sentences(measured: Iterable[ReturnScores]) -> list[str]:
    """Whether policies find shorter paths through the graph than were recorded, in sentences: a data set's walks, then
    policies.

    A policy counts by its mean over seeds, with its first target; a start from which nothing was recorded is one that
    it wins.
    """
    sentences: dict[str, None] = {}  # the data's own sentence once
    for scores in measured:
        if scores.starts.empty:
            continue
        data = scores.starts.drop_duplicates("start")
        seen = set[str]()
        shortest = int((data["recorded"] == data["optimum"]).sum())
        starts = len(data)
        dataset = scores.description["dataset"]
        sentences[f"{dataset}: the best recorded walk is a shortest path from {shortest} of {starts} starts."] = None
        for variant, target, played in _group_by_variant_and_target(scores.starts):
            if variant not in seen:
                seen.add(variant)
                sentences[f"{dataset}: {_format_start_comparison(_format_variant_label(variant, target), played)}"] = (
                    None
                )
    return list(sentences)


def _format_start_comparison(label: str, played: pd.DataFrame) -> str:
    mean = played.groupby("start")[["total", "recorded", "optimum"]].mean()
    walks = mean["recorded"].fillna(-np.inf)
    starts = len(mean)
    shortest = int((mean["total"] == mean["optimum"]).sum())
    better = int((mean["total"] > walks).sum())
    equal = int((mean["total"] == walks).sum())
    where = "every start" if shortest == starts else f"{shortest} of {starts} starts"
    most = "most" if better > starts / 2 else "not most"
    return (
        f"{label} takes a shortest path from {where}; it is better than the best recorded walk from "
        f"{better}, {most} of "
        f"them, as good from {equal}, worse from {starts - better - equal}."
    )


def format_variants_without_curve(measured: Iterable[ReturnScores]) -> list[str]:
    """One sentence naming the variants that were evaluated once only, so that no curve shows how they came there; none
    if there are none.
    """
    names = [
        f"{variant} on {scores.description['dataset']}"
        for scores in measured
        for variant, rows in scores.progress.groupby("variant", sort=False)
        if rows.groupby("seed").size().max() < 2
    ]
    return [f"Evaluated only once, at the end, and so without a curve: {', '.join(names)}."] if names else []


@dataclass(frozen=True)
class Belief:
    """Estimates of a variant's discounted return on a data set, and the true one; intervals over seeds."""

    dataset: str
    variant: str
    gamma: float
    truth: Estimate
    cut: float  # share of the true episodes that were cut off while rewards still counted
    claimed: Estimate | None  # by its own Q-values
    fitted: Estimate | None  # by fitted-Q evaluation
    moving: int  # seeds whose fitted-Q estimate still moved when its steps were used up,
    seeds: int  # and all seeds

    @property
    def cut_told(self) -> str:
        """How much of the truth is missing, if any is."""
        return f"{100 * self.cut:.0f} % of the episodes cut off" if self.cut else ""

    @property
    def moving_told(self) -> str:
        """Whether the fitted-Q estimate has settled."""
        return f"not settled in {self.moving} of {self.seeds} seeds" if self.moving else ""

    @property
    def verdict(self) -> str:
        """How the claimed return differs from the true one."""
        if self.claimed is None or not isfinite(self.claimed.low - self.truth.low):
            return ""
        return {1: "over-estimated", 0: "not clearly off", -1: "under-estimated"}[
            compare_intervals(self.claimed, self.truth)
        ]


def build_value_comparisons(scores: ReturnScores) -> list[Belief]:
    """A row for each variant with an estimate."""
    rows = []
    for variant, estimates in scores.values.groupby("variant", sort=False):
        believed = {source: estimate_mean_over_seeds(part["value"]) for source, part in estimates.groupby("source")}
        truth = estimate_mean_over_seeds(estimates.groupby("seed")["truth"].first())
        identity = (scores.description["dataset"], str(variant))
        gamma = float(estimates["gamma"].iloc[0])
        cut = float(estimates["cut"].mean())
        moving = int((~estimates["converged"]).sum())
        seeds = int(estimates["seed"].nunique())
        rows.append(Belief(*identity, gamma, truth, cut, believed.get(CLAIMED), believed.get(FITTED), moving, seeds))
    return rows
