"""The pictures of a report over seeds: each policy with its seeds and both intervals, and the curves of every seed."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from tasks.common import plots
from tasks.common.estimates import Estimate
from tasks.common.plots import Panel
from tasks.language.reporting import metric_wording
from tasks.language.reporting.scoreboard import Results

STEP = "step"
OVERVIEW = {  # metric -> title; those that were measured of every policy are drawn first on the page
    "strict_greedy": "greedy answers that are right, %",
    "gold_greedy": "greedy answers that are gold, %",
    "rubric_greedy": "rubric points of greedy answers, of 10",
    "reference_loss": "nats a token of the reference responses",
    "pair_accuracy": "held-out pairs that are told apart, %",
}


def render_overview_figures(each: Mapping[str, Results], seeds: Results, problems: Results) -> dict[str, str]:
    """By metric of the report's overview, of each policy: a dot for each seed, the interval over seeds, and over
    problems.
    """
    svgs = {}
    for metric, title in OVERVIEW.items():
        if not all(metric in judged for judged in seeds.judged.values()):
            continue
        scale = 100 if metric_wording.get_metric_kind(metric) in metric_wording.SHARES else 1
        name = f"seeds-{metric.replace('_', '-')}"
        svgs[name] = render_two_intervals(
            {policy: _scale_estimate(judged[metric], scale) for policy, judged in seeds.judged.items()},
            {policy: _scale_estimate(judged[metric], scale) for policy, judged in problems.judged.items()},
            {
                policy: [scale * seed_results.judged[policy][metric].mean for seed_results in each.values()]
                for policy in seeds.judged
            },
            title,
            name,
            level=scale * seeds.judged[seeds.baseline][metric].mean,
            form="{:.1f}" if scale == 100 else "{:.2f}",
        )
    return svgs


def render_seed_curves(each: Mapping[str, Mapping[str, pd.DataFrame]]) -> dict[str, str]:
    """Of every stage all its curves, a panel for each: a thin line for each seed, and a thick one for their mean."""
    svgs = {}
    first = next(iter(each.values()))
    for stage, frame in first.items():
        frames = [seeds[stage] for seeds in each.values() if stage in seeds]
        columns = [
            column for column in frame.columns if column != STEP and all(column in seed_frame for seed_frame in frames)
        ]
        panels = [
            Panel(
                column,
                {"each seed, and their mean": [_get_curve_points(seed_frame, column) for seed_frame in frames]},
                {},
            )
            for column in columns
            if all(seed_frame[column].notna().any() for seed_frame in frames)
        ]
        if panels:
            svgs[f"seeds-curves-{stage}"] = plots.render_small_multiples(panels, STEP, "", f"seeds-curves-{stage}")
    return svgs


def _get_curve_points(frame: pd.DataFrame, column: str) -> tuple[list[float], list[float]]:
    measured = frame[frame[column].notna()]
    return measured[STEP].tolist(), measured[column].tolist()


def _scale_estimate(estimate: Estimate, scale: float) -> Estimate:
    return Estimate(scale * estimate.mean, scale * estimate.low, scale * estimate.high)


def render_two_intervals(
    wide: Mapping[str, Estimate],
    narrow: Mapping[str, Estimate],
    single: Mapping[str, Sequence[float]],
    x: str,
    name: str,
    *,
    level: float,
    form: str = "{:.2f}",
) -> str:
    """For each kind, the first on top: its mean over seeds, a strong line for `wide`, the interval over seeds, a faint
    one for `narrow`, the interval over problems, and a dot for each seed. `level` is a dashed line.
    """
    with mpl.rc_context(plots.STYLE):
        figure = Figure(figsize=(plots.SMALL, 0.5 + 0.36 * len(wide)), layout="constrained")
        axis = figure.subplots()
        for row, (kind, estimate) in zip(range(len(wide), 0, -1), wide.items(), strict=True):
            axis.plot(
                [narrow[kind].low, narrow[kind].high], [row - 0.16] * 2, color=plots.COLOURS[4], lw=1.6, alpha=0.8
            )
            axis.plot([estimate.low, estimate.high], [row] * 2, color=plots.COLOURS[0], lw=1.6)
            axis.plot(single[kind], [row + 0.16] * len(single[kind]), "o", color="#777777", ms=2.5)
            axis.plot([estimate.mean], [row], "o", color=plots.COLOURS[0], ms=4)
            side: Any = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "annotation_clip": False}
            axis.annotate(form.format(estimate.mean), (1.0, row), xycoords=("axes fraction", "data"), **side)
        axis.axvline(level, color="#999999", linewidth=0.8, linestyle="--", zorder=0)
        axis.set_yticks([*range(len(wide), 0, -1)], [*wide])
        axis.set(xlabel=x, ylim=(0.4, len(wide) + 0.6))
        return plots.render_svg(figure, name)
