"""The report's first figure: its axis shows differences, not what they are differences of."""

from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tasks.common import plots
from tasks.common.estimates import Estimate


def render_change_figure(values: Mapping[str, Mapping[str, Estimate]], x: str, name: str, form: str = "+.1f") -> str:
    """For each series, in its colour, and each kind, the first on top, a difference with its interval, or a hollow dot
    without one.

    `values` is series -> kind -> difference; the line at 0 is no difference. The difference is written at the right.
    """
    kinds = list(dict.fromkeys(kind for series in values.values() for kind in series))
    with mpl.rc_context(plots.STYLE):
        height = 0.7 + (0.14 + 0.16 * len(values)) * len(kinds)
        figure = Figure(figsize=(plots.SMALL, height), layout="constrained")
        axis = figure.subplots()
        for number, (series, colour) in enumerate(zip(values.values(), plots.COLOURS, strict=False)):
            for kind, estimate in series.items():
                position = len(kinds) - kinds.index(kind) - 0.36 * (number - (len(values) - 1) / 2)
                bounded = bool(np.isfinite(estimate.low))
                look: Any = {"ms": 4, "color": colour, "mfc": colour if bounded else "none", "lw": 1.2}
                bars = plots.compute_error_bars(estimate) if bounded else None
                axis.errorbar(estimate.mean, position, xerr=bars, fmt="o", **look)
                side: Any = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "annotation_clip": False}
                written = f"{estimate.mean:{form}}"
                axis.annotate(written, (1.0, position), xycoords=("axes fraction", "data"), color=colour, **side)
        axis.axvline(0.0, color="#555555", linewidth=0.8, zorder=0)
        axis.set_yticks([*range(len(kinds), 0, -1)], kinds)
        axis.set(xlabel=x, ylim=(0.4, len(kinds) + 0.6))
        if len(values) > 1:
            handles = [Line2D([], [], color=c, marker="o", ms=4) for c, _ in zip(plots.COLOURS, values, strict=False)]
            figure.legend(handles, list(values), loc="outside lower left", ncols=len(values))
        return plots.render_svg(figure, name)
