"""The pictures of docs/faults.md: 800 px wide, one message each, in the colours of the report."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.training_faults.fault import Fault, Row
from tasks.common import plots

# inches
SIZE = (8.0, 3.6)
DPI = 100
INSIDE: Any = {
    "ha": "center",
    "fontsize": 9,
    "bbox": {"boxstyle": "round,pad=0.15", "facecolor": "white", "linewidth": 0},
}
STYLE = {**plots.STYLE, "font.size": 10, "axes.titlesize": 10.5, "legend.fontsize": 9, "lines.linewidth": 1.8}


def save_fault_picture(fault: Fault, results: Mapping[str, Mapping[str, Row]], target: Path) -> None:
    """Draw the arms that were run."""
    rows = {name: [results[name][seed] for seed in sorted(results[name])] for name in fault.arms if name in results}
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
        fault.draw(figure, rows)
        target.parent.mkdir(exist_ok=True)
        figure.savefig(target, metadata={"Software": None})


def plot_curves(
    axis: Axes, rows: Mapping[str, Sequence[Row]], column: str, title: str, *, scale: float = 1.0, smooth: int = 1
) -> None:
    """A curve for each arm against the step: the mean over seeds, running over `smooth` steps, and thin lines for
    single seeds.
    """
    for colour, (name, seeds) in zip(plots.cycle_colours(len(rows)), rows.items(), strict=True):
        steps = seeds[0]["curve"]["step"]
        values = [compute_running_mean(scale * np.array(row["curve"][column]), smooth) for row in seeds]
        if len(values) > 1:
            for one in values:
                axis.plot(steps, one, color=colour, alpha=0.35, linewidth=0.8)
        axis.plot(steps, np.mean(values, axis=0), color=colour, label=name)
    axis.set(title=title, xlabel="step")


def plot_bars(
    axis: Axes, rows: Mapping[str, Sequence[Row]], metric: str, title: str, scale: float, decimals: int = 1
) -> None:
    """A bar for each arm with its mean at its foot: the estimate's mean over seeds, and of one seed its 95 % interval
    over problems.
    """
    for place, (colour, seeds) in enumerate(zip(plots.cycle_colours(len(rows)), rows.values(), strict=True)):
        found = [row["evaluated"][metric] for row in seeds]
        mean = scale * float(np.mean([one["mean"] for one in found]))
        axis.bar(place, mean, color=colour, width=0.6)
        if len(found) == 1:
            low, high = (scale * found[0][end] for end in ("low", "high"))
            axis.errorbar(place, mean, yerr=[[mean - low], [high - mean]], color="black", linewidth=1)
        axis.annotate(f"{mean:.{decimals}f}", (place, 0), xytext=(0, 5), textcoords="offset points", **INSIDE)
    axis.set_xticks(range(len(rows)), ["\n".join(textwrap.wrap(name, 13)) for name in rows])
    axis.set_title(title)
    axis.margins(x=0.2, y=0.15)


def compute_running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """The mean of each value and those before it, `window` in all; fewer at the start."""
    sums = np.cumsum(np.concatenate([[0.0], values]))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    means: np.ndarray = (sums[ends] - sums[starts]) / (ends - starts)
    return means


def add_shared_legend(figure: Figure, axis: Axes, columns: int = 4) -> None:
    """One legend for all panels, below them."""
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=columns)
