"""The picture of test-time scaling: accuracy against generated tokens."""

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tasks.common import plots
from tasks.common.estimates import Estimate


def render_scaling_figure(
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, Estimate]]]],
    heights: Mapping[str, float],
    x: str,
    y: str,
    name: str,
) -> str:
    """A panel of lines with intervals against a cost on a logarithmic axis, shifted a little so that intervals stand
    apart.

    A label has one colour in all panels; `heights` are dashed lines.
    """
    labels = list(dict.fromkeys(label for lines in panels.values() for label in lines))
    with mpl.rc_context(plots.STYLE):
        figure = Figure(figsize=(plots.WIDTH, plots.WIDTH * 0.5), layout="constrained")
        axes = figure.subplots(1, len(panels), squeeze=False, sharex=True, sharey=True).ravel()
        for axis, (title, lines) in zip(axes, panels.items(), strict=True):
            for label, line in lines.items():
                number = labels.index(label)
                axis.errorbar(
                    [cost * 1.025 ** (number - (len(labels) - 1) / 2) for cost, _ in line],
                    [estimate.mean for _, estimate in line],
                    yerr=np.hstack([plots.compute_error_bars(estimate) for _, estimate in line]),
                    fmt="o-",
                    ms=3,
                    elinewidth=0.6,
                    color=plots.cycle_colours(len(labels))[number],
                )
            for height, dash in zip(heights.values(), plots.DASHES, strict=False):
                axis.axhline(height, color="#777777", lw=0.8, ls=dash, zorder=0)
            axis.set(title=title, xlabel=x, xscale="log")
        axes[0].set_ylabel(y)
        handles = [
            Line2D([], [], color=colour, label=label)
            for colour, label in zip(plots.cycle_colours(len(labels)), labels, strict=True)
        ]
        handles += [
            Line2D([], [], color="#777777", lw=0.8, ls=dash, label=label)
            for label, dash in zip(heights, plots.DASHES, strict=False)
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
        return plots.render_svg(figure, name)
