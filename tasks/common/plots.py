"""The report's plots as SVG text: the same numbers give the same bytes, with no date in them.

Text stays text, in the page's own font. Colours are Okabe and Ito's, which people with colour-blindness tell apart.
"""

import io
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tasks.common.estimates import Estimate

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# inches; panels in a row
WIDTH = 8.6
HEIGHT = 1.7
COLUMNS = 4
LEGEND = 130  # letters that a legend as wide as a figure has room for
MARK = 5  # of them, for the line beside a name
SMALL = 4.2  # inches of a plot that is as wide as a phone
# points of a label's letter
LETTER_WIDTH = 4.6
LETTER_HEIGHT = 9.0
STYLE: Any = {  # Any: matplotlib's stubs know each key
    "svg.fonttype": "none",
    "svg.hashsalt": "posttrain",
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "legend.fontsize": 7,
}
DASHES = ("--", ":", "-.")
SELDOM = ("eval_", "grad_variance")  # a curve repeats their last value until they are measured again
PAIRED = ("/chosen", "/rejected", "/none", "/running_mean", "/critic")  # of one quantity, drawn in one panel


def render_metric_curves(frame: pd.DataFrame, name: str) -> str:
    """Small multiples of a stage's metrics against its step; x/chosen and x/rejected share a panel, and so do
    baselines.
    """
    panels: dict[str, list[str]] = {}
    for column in frame.columns.drop("step"):
        stem = next((column.removesuffix(end) for end in PAIRED if column.endswith(end)), column)
        panels.setdefault(stem, []).append(column)
    rows = ceil(len(panels) / COLUMNS)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, HEIGHT * rows), layout="constrained")
        axes = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
        for axis, (stem, columns) in zip(axes, panels.items(), strict=False):
            shown = select_measured_rows(frame, columns) if stem.startswith(SELDOM) else frame
            for colour, column in zip(COLOURS, columns, strict=False):
                label = column.removeprefix(stem + "/") if len(columns) > 1 else None
                _draw_curve(axis, shown["step"], shown[column], colour, label, dots=stem.startswith(SELDOM))
            axis.set_title(stem)
            if stem == "grad_variance":
                axis.set_yscale("log")
            if len(columns) > 1:
                axis.legend(loc="best")
        for axis in axes[len(panels) :]:
            axis.axis("off")
        return render_svg(figure, name)


def select_measured_rows(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The rows in which a metric that is measured now and then was: its copies in between are no further
    measurements.
    """
    values = frame[list(columns)]
    return frame[(values != values.shift()).any(axis=1)]


def _draw_curve(
    axis: Axes, steps: pd.Series, values: pd.Series, colour: str, label: str | None, dots: bool = False
) -> None:
    """A faint line of single steps, and a strong one of their running mean over a twentieth of the curve; or with
    `dots` single measurements.
    """
    window = 1 if dots else max(1, len(values) // 20)
    if window > 1:
        axis.plot(steps, values, color=colour, alpha=0.25, linewidth=0.6)
    look: Any = {"marker": "o", "ms": 2.5} if dots else {}
    axis.plot(steps, values.rolling(window, min_periods=1).mean(), color=colour, label=label, **look)


def render_curve_panel(
    lines: Mapping[str, tuple[pd.Series, pd.Series]], title: str, x: str, name: str, *, dots: bool = False
) -> str:
    """One small plot of a few labelled curves, each with its steps, smoothed as in `curves`; or with `dots` single
    measurements.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(SMALL, SMALL * 0.55), layout="constrained")
        axis = figure.subplots()
        for colour, (label, (steps, values)) in zip(cycle_colours(len(lines)), lines.items(), strict=True):
            _draw_curve(axis, steps, values, colour, label if len(lines) > 1 else None, dots)
        axis.set(title=title, xlabel=x)
        if len(lines) > 1:
            axis.legend(loc="best")
        return render_svg(figure, name)


def render_scatter_plot(points: Mapping[str, tuple[Estimate, Estimate]], x: str, y: str, name: str) -> str:
    """One point with its two intervals for each policy; labels stand where they meet no point and no other label."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(SMALL, SMALL * 0.7), layout="constrained")
        axis = figure.subplots()
        colours = cycle_colours(len(points))
        for colour, (across, up) in zip(colours, points.values(), strict=True):
            axis.errorbar(
                across.mean,
                up.mean,
                xerr=compute_error_bars(across),
                yerr=compute_error_bars(up),
                fmt="o",
                ms=4,
                lw=0.8,
                color=colour,
            )
        axis.set(xlabel=x, ylabel=y)
        axis.margins(0.15)
        figure.draw_without_rendering()  # until then the axes have no size
        to_points = 72 / figure.dpi
        positions = [axis.transData.transform((across.mean, up.mean)) * to_points for across, up in points.values()]
        frame = axis.get_window_extent()
        room = (frame.x0 * to_points, frame.y0 * to_points, frame.x1 * to_points, frame.y1 * to_points)
        sizes = [(LETTER_WIDTH * len(policy), LETTER_HEIGHT) for policy in points]
        for colour, policy, (across, up), offset in zip(
            colours, points, points.values(), compute_label_offsets(positions, sizes, room), strict=True
        ):
            far = max(map(abs, offset)) > 2 * LETTER_HEIGHT
            line: Any = {"arrowstyle": "-", "color": colour, "lw": 0.4} if far else None
            axis.annotate(
                policy,
                (across.mean, up.mean),
                xytext=offset,
                textcoords="offset points",
                color=colour,
                arrowprops=line,
            )
        return render_svg(figure, name)


def compute_label_offsets(
    points: Sequence[Any], sizes: Sequence[tuple[float, float]], room: tuple[float, float, float, float]
) -> list[tuple[float, float]]:
    """For each point (all in the same unit) the offset of its label's lower left corner from it.

    Labels are placed in turn. Each takes the nearest of its places that lies in `room` (left, bottom, right, top) and
    meets no point and no earlier label; where none is free, the one that overlaps least.
    """
    occupied = [(x - 4, y - 4, x + 4, y + 4) for x, y in points]
    offsets = []
    for (x, y), (width, height) in zip(points, sizes, strict=True):
        best = (0.0, 0.0)
        least = float("inf")
        for distance in (5.0, 14.0, 26.0, 40.0):
            sides = (
                (distance, 0.0),
                (-distance - width, 0.0),
                (-width / 2, distance),
                (-width / 2, -distance - height),
            )
            corners = [(dx, dy + tilt) for dx, dy in sides[:2] for tilt in (2.0, -height - 2.0)] + [*sides[2:]]
            for dx, dy in corners:
                box = (x + dx, y + dy, x + dx + width, y + dy + height)
                outside = width * height - _compute_overlap_area(box, room)
                overlap = sum(_compute_overlap_area(box, other) for other in occupied) + outside
                if overlap < least - 1e-9:
                    best = (dx, dy)
                    least = overlap
        offsets.append(best)
        occupied.append((x + best[0], y + best[1], x + best[0] + width, y + best[1] + height))
    return offsets


def _compute_overlap_area(box: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The area that two boxes (left, bottom, right, top) share."""
    width = min(box[2], other[2]) - max(box[0], other[0])
    height = min(box[3], other[3]) - max(box[1], other[1])
    return max(width, 0.0) * max(height, 0.0)


def render_lines_with_levels(
    lines: Mapping[str, Sequence[tuple[float, Estimate]]],
    heights: Mapping[str, float],
    x: str,
    y: str,
    name: str,
    *,
    logarithmic: bool = False,
) -> str:
    """One line with intervals for each label, shifted a little so that intervals stand apart; `heights` are dashed
    lines.

    `logarithmic` is the x axis.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, WIDTH * 0.42), layout="constrained")
        axis = figure.subplots()
        reach = max((position for line in lines.values() for position, _ in line), default=1.0)
        for number, (label, line) in enumerate(lines.items()):
            shift = number - (len(lines) - 1) / 2
            positions = [
                position * 1.02**shift if logarithmic else position + reach * 0.008 * shift for position, _ in line
            ]
            bars = np.hstack([compute_error_bars(estimate) for _, estimate in line])
            means = [estimate.mean for _, estimate in line]
            look: Any = {"fmt": "o-", "ms": 3, "lw": 1.2, "elinewidth": 0.7, "color": COLOURS[number % len(COLOURS)]}
            axis.errorbar(positions, means, yerr=bars, label=label, **look)
        for (label, height), dash in zip(heights.items(), itertools.cycle(DASHES), strict=False):
            axis.axhline(height, color="#777777", lw=0.8, ls=dash, zorder=0)
            axis.annotate(
                label,
                (1.0, height),
                xycoords=("axes fraction", "data"),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                color="#555555",
                fontsize=6.5,
            )
        axis.set(xlabel=x, ylabel=y)
        if logarithmic:
            axis.set_xscale("log")
        axis.legend(loc="best")
        return render_svg(figure, name)


def render_calibration_plot(frame: pd.DataFrame, name: str) -> str:
    """Predicted against observed share of preferences, or of labels; a point's area grows with its number of pairs or
    labels.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(SMALL, SMALL * 0.7), layout="constrained")
        axis = figure.subplots()
        axis.plot([0, 1], [0, 1], color="#999999", linewidth=0.8, linestyle="--")
        axis.plot(frame["predicted"], frame["observed"], color=COLOURS[0], linewidth=0.8)
        counts = frame["pairs"] if "pairs" in frame else frame["labels"]
        areas = 8 + 60 * counts / max(counts.max(), 1)
        axis.scatter(frame["predicted"], frame["observed"], s=areas, color=COLOURS[0], zorder=3)
        axis.set(xlabel="predicted", ylabel="observed", xlim=(0, 1), ylim=(0, 1), aspect="equal")
        return render_svg(figure, name)


def render_category_intervals(
    values: Mapping[str, Estimate],
    x: str,
    name: str,
    *,
    level: float,
    limits: tuple[float, float] = (0.0, 1.0),
    width: float = WIDTH,
    form: str = "{:.2f}",
) -> str:
    """A point with its interval and its mean, written as `form`, for each kind, the first on top; `level` is a dashed
    line, such as chance.
    """
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, 0.5 + 0.26 * len(values)), layout="constrained")
        axis = figure.subplots()
        rows = range(len(values), 0, -1)
        bars = np.hstack([compute_error_bars(estimate) for estimate in values.values()])
        means = [estimate.mean for estimate in values.values()]
        axis.errorbar(means, rows, xerr=bars, fmt="o", ms=4, lw=0.8, color=COLOURS[0])
        axis.axvline(level, color="#999999", linewidth=0.8, linestyle="--", zorder=0)
        for row, mean in zip(rows, means, strict=True):
            side: Any = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "annotation_clip": False}
            axis.annotate(form.format(mean), (1.0, row), xycoords=("axes fraction", "data"), **side)
        axis.set_yticks([*rows], [*values])
        axis.set(xlabel=x, xlim=limits, ylim=(0.4, len(values) + 0.6))
        return render_svg(figure, name)


Line = tuple[Sequence[float], Sequence[float]]  # the xs and ys of one seed


@dataclass(frozen=True)
class Panel:
    """One of several small plots: each label has one line, or one cloud of points, for each seed."""

    title: str
    seeds: Mapping[str, Sequence[Line]]  # label -> (xs, ys) of each seed
    levels: Mapping[str, float]  # name -> a height to compare with, drawn across


def render_small_multiples(panels: Sequence[Panel], x: str, y: str, name: str, *, diagonal: bool = False) -> str:
    """The panels with one legend: a thin line for each seed, and a thick one for their mean where all have the same xs.

    With `diagonal`, points are drawn instead of lines, and the line x = y. Where some ys are far beyond the xs, the y
    axis is logarithmic from there on.
    """
    labels = list(dict.fromkeys(label for panel in panels for label in panel.seeds))
    colours = dict(zip(labels, cycle_colours(len(labels)), strict=True))
    levels = dict.fromkeys(named for panel in panels for named in panel.levels)
    styles: Any = {
        named: {"color": "#777777", "lw": 0.8, "ls": dash} for named, dash in zip(levels, DASHES, strict=False)
    }
    columns = min(3, len(panels))
    rows = ceil(len(panels) / columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, HEIGHT * (1.4 * rows + 0.2)), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for axis, panel in zip(axes, panels, strict=False):
            for label, seeds in panel.seeds.items():
                _draw_seed_lines(axis, seeds, colours[label], diagonal)
            for named, level in panel.levels.items():
                axis.axhline(level, **styles[named])
            if diagonal:
                _draw_diagonal(axis, panel)
            axis.set(title=panel.title, xlabel=x)
        for axis in axes[::columns]:
            axis.set_ylabel(y)
        for axis in axes[len(panels) :]:
            axis.axis("off")
        mark: Any = {"marker": "o", "markersize": 4, "linestyle": ""} if diagonal else {}
        handles = [Line2D([], [], color=colours[label], label=label, **mark) for label in labels]
        handles += [Line2D([], [], **style, label=name) for name, style in styles.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=count_legend_columns([*labels, *styles]))
        return render_svg(figure, name)


def count_legend_columns(labels: Sequence[str]) -> int:
    """The most columns, 8 at most, in which a legend of these names is no wider than the figure; they are filled one
    after another.
    """
    for count in range(min(8, len(labels)), 1, -1):
        rows = ceil(len(labels) / count)
        columns = [labels[first : first + rows] for first in range(0, len(labels), rows)]
        if sum(max(map(len, column)) + MARK for column in columns) <= LEGEND:
            return count
    return 1


def _draw_seed_lines(axis: Axes, seeds: Sequence[Line], colour: str, points: bool) -> None:
    if points:
        for xs, ys in seeds:
            axis.plot(xs, ys, "o", color=colour, markersize=3.5, alpha=0.7, markeredgewidth=0)
        return
    for xs, ys in seeds:
        axis.plot(xs, ys, color=colour, alpha=0.4, linewidth=0.6)
    if len({tuple(xs) for xs, _ in seeds}) == 1:
        axis.plot(seeds[0][0], np.mean([ys for _, ys in seeds], axis=0), color=colour)


def _draw_diagonal(axis: Axes, panel: Panel) -> None:
    across, up = (
        np.concatenate([cloud[side] for points in panel.seeds.values() for cloud in points]) for side in (0, 1)
    )
    reach = max(np.abs(across).max(), 1e-9)
    if np.abs(up).max() > 10 * reach:
        axis.set_yscale("symlog", linthresh=reach)
    margin = max(0.05 * np.ptp(across), 0.02 * reach)  # room even where all agree
    low = across.min() - margin
    high = across.max() + margin
    line = np.linspace(low, high, 50)
    axis.plot(line, line, color="#999999", linewidth=0.8, zorder=0)


def cycle_colours(count: int) -> Sequence[str]:
    """So many colours, the first again after the last."""
    return [COLOURS[index % len(COLOURS)] for index in range(count)]


def compute_error_bars(estimate: Estimate) -> np.ndarray:
    """How far an interval reaches below and above the mean: (2, 1), as error bars want it; nothing where it has no
    bounds.
    """
    if not np.isfinite([estimate.low, estimate.high]).all():
        return np.zeros((2, 1))
    return np.array([[estimate.mean - estimate.low], [estimate.high - estimate.mean]])


def render_svg(figure: Figure, name: str) -> str:
    """The figure's <svg> element; its ids carry `name`, so that several may stand in one page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text[text.index("<svg") :])
    return text.strip() + "\n"
