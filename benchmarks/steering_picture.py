"""The picture of benchmarks/results/steering.json: `python -m benchmarks.steering_picture` draws
tasks/extensions/reviews/reviews.png.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from benchmarks.steering_results import METHODS, ROOT, WITH, WITHOUT, estimate_mean_over_seeds, load_steering_results
from tasks.common import plots

PICTURE = ROOT / "tasks/extensions/reviews/reviews.png"
FIRST = "positive/first"
SECOND = "positive/second"
SIDES = {
    WITH: (plots.COLOURS[0], -0.12),
    WITHOUT: (plots.COLOURS[1], 0.12),
}  # colour, and where beside the method's place
PANELS: dict[
    str, tuple[dict[str, str], float, str, float | None]
] = {  # title -> measures with markers, factor, scale, top
    "positive continuations, %": ({FIRST: "^", SECOND: "o"}, 100, "linear", 103),
    "KL to SFT, nats a continuation": ({"kl": "o"}, 1, "symlog", None),
    "perplexity under SFT": ({"perplexity": "o"}, 1, "symlog", None),
    "the commonest sentence, % of all": ({"commonest": "o"}, 100, "linear", 103),
}


def save_steering_picture(results: Mapping[str, Mapping[str, Any]], file: Path) -> None:
    """Means over seeds with Student's 95 % intervals, cut off where no value can be, and a faint point for each
    seed.
    """
    with mpl.rc_context({**plots.STYLE, "svg.fonttype": "path"}):
        figure = Figure(figsize=(plots.WIDTH, plots.WIDTH * 0.62), layout="constrained")
        for axis, (title, (markers, scale, kind, top)) in zip(
            figure.subplots(2, 2).ravel(), PANELS.items(), strict=True
        ):
            for number, (measure, marker) in enumerate(markers.items()):
                shift = 0.07 * (number - (len(markers) - 1) / 2)
                plot_mean_with_interval(axis, results.get("SFT", {}), measure, scale, shift, "#555555", marker)
                for kl, (colour, side) in SIDES.items():
                    for place, method in enumerate(METHODS, start=1):
                        cells = results.get(f"{method}, {kl}", {})
                        plot_mean_with_interval(axis, cells, measure, scale, place + side + shift, colour, marker)
            axis.set_xticks(range(len(METHODS) + 1), ["SFT", *METHODS])
            axis.set_yscale(kind)
            axis.set_ylim(0, top)
            axis.set_title(title)
        handles = [Line2D([], [], color=colour, marker="o", ls="", label=kl) for kl, (colour, _) in SIDES.items()]
        named = {"^": "by the classifier in the reward", "o": "by the second classifier"}
        handles += [Line2D([], [], color="#555555", marker=one, ls="", label=text) for one, text in named.items()]
        figure.legend(handles=handles, loc="outside lower center", ncols=4)
        figure.savefig(file, dpi=150, facecolor="white", metadata={"Software": None})


def plot_mean_with_interval(
    axis: Axes, cells: Mapping[str, Any], measure: str, scale: float, place: float, colour: str, marker: str
) -> None:
    """One mean with its interval, and the seeds behind it; nothing where nothing is measured."""
    values = [scale * cell[measure][0] for cell in cells.values()]
    if not values:
        return
    mean = estimate_mean_over_seeds(values)
    axis.plot([place] * len(values), values, marker, color=colour, ms=2.5, alpha=0.4, markeredgewidth=0)
    bars = plots.compute_error_bars(mean)
    axis.errorbar([place], [mean.mean], yerr=bars, fmt=marker, ms=4.5, color=colour, lw=0.9)


if __name__ == "__main__":
    save_steering_picture(load_steering_results(), PICTURE)
