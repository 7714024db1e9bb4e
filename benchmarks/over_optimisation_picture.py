"""The picture of benchmarks/over_optimisation.py: proxy and gold against the KL to SFT."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.training_faults import pictures
from tasks.common import plots

SIZES = {"default": "-", "quarter": "--"}


def save_over_optimisation_picture(results: Mapping[str, Mapping[str, Any]], target: Path) -> None:
    """Best of n on the left and in the middle, PPO on the right."""
    with mpl.rc_context(pictures.STYLE):
        figure = Figure(figsize=(8.0, 4.2), dpi=pictures.DPI, layout="constrained")
        proxy, gold, path = figure.subplots(1, 3)
        _plot_best_of_n(proxy, results["best of n"], "proxy", "best of n: the head's score")
        _plot_best_of_n(gold, results["best of n"], "rubric", "best of n: rubric, of 1")
        for name, row in results.get("PPO", {}).items():
            order = np.argsort(row["kl"])
            for column, shown in (("proxy", "reward"), ("rubric", "rubric"), ("right", "right")):
                path.plot(np.array(row["kl"])[order], np.array(row[column])[order], label=shown, marker=".")
            path.set(title=f"PPO ({name})", xlabel="KL to SFT, nats")
        if results.get("PPO"):
            path.set_ylim(0, 1)
            path.legend(loc="upper right")
        figure.legend(*proxy.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        target.parent.mkdir(exist_ok=True)
        figure.savefig(target, metadata={"Software": None})


def _plot_best_of_n(axis: Axes, rows: Mapping[str, Any], column: str, title: str) -> None:
    pairs = [*dict.fromkeys(name.partition(", ")[2] for name in rows)]
    colours = dict(zip(pairs, plots.cycle_colours(len(pairs)), strict=True))
    for name, row in rows.items():
        size, _, kind = name.partition(", ")
        mean, low, high = np.array(row[column]).T
        axis.plot(row["kl"], mean, linestyle=SIZES[size], color=colours[kind], label=name)
        if size == "default":
            axis.fill_between(row["kl"], low, high, color=colours[kind], alpha=0.12, linewidth=0)
    axis.set(title=title, xlabel="KL to SFT, nats")
