"""What a comparison says, in words: numbers as a person reads them, and one sentence of what can and cannot be
concluded.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flows.lineage.comparison.evaluation_comparison import Compared

SHARES = (
    "strict_",
    "lenient_",
    "timed_out_",
    "unjudged_",
    "ended_",
    "steps_",
)  # names of metrics that are shares; their differences are points
HEADLINE = ("strict_greedy", "reference_loss")  # of these, the first that there is
SHOWN = (  # how the names begin of what stands in the short table
    "strict_greedy",
    "lenient_greedy",
    "strict_mean_at_",
    "ended_greedy",
    "rubric_greedy",
    "reward_greedy",
    "length_greedy",
    "reference_loss",
)
FEW = ("strict_greedy", "strict_mean_at_", "reference_loss")
BEST = "_tbest"  # of the metrics at a temperature, those at each policy's own best one are shown
Row = Mapping[str, Any]


def format_metric_value(metric: str, number: float) -> str:
    """41.2 % of a share; another number by its size."""
    return f"{100 * number:.1f} %" if metric.startswith(SHARES) else f"{number:.4g}"


def format_metric_difference(metric: str, number: float | None) -> str:
    """+1.8 points of a share, without the unit; ? where an end of an interval is not known."""
    if number is None:
        return "?"
    return f"{100 * number + 0.0:+.1f}" if metric.startswith(SHARES) else f"{number + 0.0:+.3g}"  # no -0


def format_confidence_interval(metric: str, row: Row) -> str:
    """`-0.5 to +4.1`; what is to be said where there is none."""
    if row["interval"] == "same":
        return "the same"
    return (
        "none of one seed"
        if row["low"] is None
        else f"{format_metric_difference(metric, row['low'])} to {format_metric_difference(metric, row['high'])}"
    )


def compare_interval_to_zero(row: Row) -> int | None:
    """1 where the interval lies wholly above 0, -1 wholly below, 0 where it holds 0; None where nothing can be said."""
    if row["low"] is None or "incomparable" in row:
        return None
    return int(row["low"] > 0) - int(row["high"] < 0)


def select_table_metrics(metrics: Mapping[str, Row], few: bool = False) -> list[str]:
    """The metrics of the short table, in its order; `few` where there is a row for each policy and metric."""
    if not any(name.startswith(SHOWN) for name in metrics):
        return list(metrics)
    return [
        name
        for start in (FEW if few else SHOWN)
        for name in metrics
        if name.startswith(start) and ("_at_" not in name or name.endswith(BEST))
    ]


def select_headline_metrics(pair: Compared) -> list[str]:
    """The metrics that the conclusion is drawn from: one of right answers, or every return."""
    if pair.flow != "language":
        return list(pair.metrics)
    return [name for name in HEADLINE if name in pair.metrics][:1] or list(pair.metrics)[:1]


def format_comparison_conclusion(names: tuple[str, str], pairs: Sequence[Compared]) -> str:
    """One sentence, of the pair of policies called `names`, or of all policies that both sides have."""
    headlines = [(pair, name) for pair in pairs for name in select_headline_metrics(pair)]
    if not headlines:
        return (
            "No policy was evaluated on both sides in a way that can be compared, so nothing can be concluded "
            "about results."
        )
    sentence = (
        _format_pair_conclusion(names, *headlines[0])
        if len(headlines) == 1 and not headlines[0][0].policy
        else _format_grouped_conclusions(headlines)
    )
    return f"{sentence}; {_format_limitations(pairs)}."


def _format_pair_conclusion(names: tuple[str, str], pair: Compared, metric: str) -> str:
    row = pair.metrics[metric]
    basis = _format_sample_size(pair)
    if pair.same:
        return f"{names[0]} and {names[1]} have one and the same evaluation"
    change = f"{_format_metric_change(metric, row)}, 95 % interval {format_confidence_interval(metric, row)}"
    if (way := compare_interval_to_zero(row)) is None:
        return f"{names[1]} minus {names[0]} in {metric} is {change}, and cannot be judged"
    if way == 0:
        return f"{basis} cannot tell {names[1]} from {names[0]} in {metric} ({change})"
    return f"{names[1]} is {'above' if way > 0 else 'below'} {names[0]} in {metric} on {basis} ({change})"


def _format_grouped_conclusions(headlines: Sequence[tuple[Compared, str]]) -> str:
    groups: dict[str, list[str]] = {}
    for pair, metric in headlines:
        row = pair.metrics[metric]
        way = SAME if pair.same else WAYS[compare_interval_to_zero(row)]
        name = "/".join(filter(None, (pair.policy, metric if pair.flow != "language" else "")))
        groups.setdefault(way, []).append(name if pair.same else f"{name} ({_format_metric_change(metric, row)})")
    metrics = {metric for pair, metric in headlines if pair.flow == "language"}
    parts = [f"{way} {', '.join(groups[way])}" for way in (*WAYS.values(), SAME) if way in groups]
    return f"In {metrics.pop() if len(metrics) == 1 else 'their main results'} {'; '.join(parts)}"


WAYS = {
    1: "B is above A for",
    -1: "B is below A for",
    0: "neither is clearly above the other for",
    None: "there is no interval to judge by for",
}
SAME = "nothing has changed for"


def _format_metric_change(metric: str, row: Row) -> str:
    unit = " points" if metric.startswith(SHARES) else ""
    return f"{format_metric_difference(metric, row['difference'])}{unit}"


def _format_sample_size(pair: Compared) -> str:
    if pair.problems:
        count = pair.problems["common"]
        return f"{count} problem{'s' * (count != 1)}"
    seeds = next((row["seeds"] for row in pair.metrics.values() if "seeds" in row), 0)
    return f"{seeds} seed{'s' * (seeds != 1)}"


def _format_limitations(pairs: Sequence[Compared]) -> str:
    """What the intervals do not cover."""
    differing = [pair for pair in pairs if not pair.same and pair.metrics]
    compared = sum(len(pair.metrics) for pair in differing)
    return ", and ".join(_iterate_limitations(differing, compared))


def _iterate_limitations(differing: Sequence[Compared], compared: int) -> Iterator[str]:
    if any("any difference may come from" in caution for pair in differing for caution in pair.cautions):
        yield "the evaluations themselves differ, so this is not the policies' doing alone"
    if any(pair.flow == "language" for pair in differing) or not differing:
        yield "it says nothing of other training seeds or of problems of another kind"
    else:
        games = " and games" if any(pair.flow == "agents" for pair in differing) else ""
        yield f"the intervals are over training seeds{games}, in this environment alone"
    if compared > 20:
        yield f"of {compared} intervals about {round(compared / 20)} miss by chance"
