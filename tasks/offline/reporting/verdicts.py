"""Whether what was expected of two variants came out: by the interval of their difference over seeds.

Two intervals that overlap may belong to a difference that is clear, so that verdicts do not go by them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isclose, isfinite
from typing import Literal

from tasks.common.errors import ConfigError
from tasks.common.estimates import Estimate, estimate_mean_over_seeds, estimate_welch_difference
from tasks.offline.datasets.normalized_score import ScoreReference
from tasks.offline.reporting.measurements import Description
from tasks.offline.reporting.results import VariantResult, format_half_width, format_rounded_number, get_dataset_returns

Came = Literal["holds", "undecided", "fails"]


@dataclass(frozen=True)
class OfflineVerdict:
    """Whether an expectation holds, fails (the other one is higher, or both are equal), or is undecided: 0 is within
    the difference's interval.
    """

    came: Came
    sentence: str


def judge_offline_expectation(
    higher: str, lower: str, dataset: str, outcomes: Sequence[VariantResult], data: Mapping[str, Description]
) -> OfflineVerdict:
    """Whether one of two variants, or of what `facts` has, scores higher on a data set, as was expected."""
    if dataset not in data:
        raise ConfigError(
            f"params.yaml: offline_report.expectations: no data set {dataset}; there are {', '.join(data)}"
        )
    score = ScoreReference(**data[dataset]["reference"]).score
    seeds = {outcome.variant: outcome.returns for outcome in outcomes if outcome.dataset == dataset}
    fact_returns = {name: (fact.mean,) for name, fact in get_dataset_returns(data[dataset]).items()}
    for name in (higher, lower):
        if name not in seeds | fact_returns:
            raise ConfigError(
                f"params.yaml: offline_report.expectations: no {name} on {dataset}; there are "
                f"{', '.join(seeds | fact_returns)}"
            )
    higher_scores, lower_scores = ([score(value) for value in (seeds | fact_returns)[name]] for name in (higher, lower))
    numbers = (
        f"{dataset}: {higher} {_format_mean_with_interval(higher_scores, higher in fact_returns)}, {lower} "
        f"{_format_mean_with_interval(lower_scores, lower in fact_returns)}"
    )
    apart = estimate_welch_difference(higher_scores, lower_scores)
    if any(len(seeds.get(name, "..")) == 1 for name in (higher, lower)):
        apart = Estimate(apart.mean, -inf, inf)  # one seed is no fact
    if higher in fact_returns and lower in fact_returns:
        apart = Estimate(apart.mean, apart.mean, apart.mean)
    if isclose(apart.low, 0.0, abs_tol=1e-9) and isclose(apart.high, 0.0, abs_tol=1e-9):
        return OfflineVerdict("fails", f"{numbers}. {higher} was expected to be higher, and the two are equal.")
    by = f"by {format_rounded_number(abs(apart.mean))}{_format_difference_bounds(apart)}"
    if apart.low > 0:
        return OfflineVerdict("holds", f"{numbers}. As expected, {higher} is higher, {by}.")
    if apart.high < 0:
        return OfflineVerdict("fails", f"{numbers}. Against what was expected, {higher} is lower, {by}.")
    if isclose(apart.mean, 0.0, abs_tol=1e-9):
        return OfflineVerdict("undecided", f"{numbers}. Undecided: the two are equal in the mean.")
    way = "higher" if apart.mean > 0 else "lower"
    return OfflineVerdict("undecided", f"{numbers}. Undecided: {higher} is {way} in the mean, {by}.")


def summarize_verdicts(verdicts: Sequence[OfflineVerdict]) -> list[str]:
    """How many expectations came out, in one sentence; none if nothing was expected."""
    if not verdicts:
        return []
    if len(verdicts) == 1:
        return [
            {
                "holds": "The one expectation holds.",
                "undecided": "The one expectation is undecided.",
                "fails": "The one expectation does not hold.",
            }[verdicts[0].came]
        ]
    counts = Counter(verdict.came for verdict in verdicts)
    words: dict[Came, tuple[str, str]] = {
        "holds": ("holds", "hold"),
        "undecided": ("is undecided", "are undecided"),
        "fails": ("does not hold", "do not hold"),
    }
    [*others, last] = [f"{counts[came]} {words[came][counts[came] > 1]}" for came in words if counts[came]]
    if not others and counts["fails"]:
        return [f"None of the {len(verdicts)} expectations holds."]
    if not others:
        return [f"All {len(verdicts)} expectations {words[verdicts[0].came][1]}."]
    return [f"Of {len(verdicts)} expectations {', '.join(others)}{',' if len(others) > 1 else ''} and {last}."]


def _format_mean_with_interval(values: Sequence[float], is_fact: bool) -> str:
    """A mean in a sentence: without its interval where that has no width or is unknown."""
    estimate = estimate_mean_over_seeds(values)
    has_interval = not is_fact and isfinite(estimate.low) and estimate.low < estimate.high
    return format_rounded_number(estimate.mean) + (f" {format_half_width(estimate)}" if has_interval else "")


def _format_difference_bounds(apart: Estimate) -> str:
    """The interval of a difference that is told without its sign."""
    if not isfinite(apart.low):
        return " (one seed)"
    if apart.low == apart.high:
        return ""
    low, high = sorted((apart.low, apart.high)) if apart.mean > 0 else sorted((-apart.low, -apart.high))
    return f" ({format_rounded_number(low)} to {format_rounded_number(high)})"
