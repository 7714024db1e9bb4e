"""What came out of a sweep against what it varied, as SVG: a panel for each metric, a point for each value with its
interval.
"""

from collections.abc import Sequence
from io import StringIO
from typing import Any

from flows.sweeps.outcome import HeadlineValue, SettingRow

# inches of a panel
WIDTH = 5.2
HEIGHT = 3.4
LINES = 8  # settings of the other parameters that a panel can tell apart
GREY = "#777777"


def render_sweep_figure(rows: Sequence[SettingRow], names: Sequence[str]) -> str:
    """The panels side by side; empty where nothing varies but the seed and there is one setting."""
    from matplotlib.figure import Figure

    axis = _choose_axis_parameter(rows)
    if not names:
        return ""
    made = Figure(figsize=(WIDTH * len(names), HEIGHT), layout="constrained")
    for ax, name in zip(made.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        _plot_metric_panel(ax, rows, name, axis)
    text = StringIO()
    made.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return text.getvalue().partition("<svg")[1] + text.getvalue().partition("<svg")[2]


def _choose_axis_parameter(rows: Sequence[SettingRow]) -> str:
    """The parameter with the most values; it runs along the panel."""
    values: dict[str, set[str]] = {}
    for row in rows:
        for key, value in row.settings.items():
            values.setdefault(key, set()).add(value)
    return max(values, key=lambda key: len(values[key]), default="")


def _plot_metric_panel(ax: Any, rows: Sequence[SettingRow], name: str, axis: str) -> None:
    groups: dict[str, list[SettingRow]] = {}
    for row in rows:
        others = ", ".join(f"{key} {value}" for key, value in row.settings.items() if key != axis)
        groups.setdefault(others, []).append(row)
    ticks = sorted({row.settings.get(axis, "") for row in rows}, key=_get_tick_sort_key)
    shown = list(groups.items())[:LINES]
    for number, (label, group) in enumerate(shown):
        shift = 0.12 * (number - (len(shown) - 1) / 2)
        group = sorted(
            (row for row in group if name in row.over_seeds), key=lambda row: ticks.index(row.settings.get(axis, ""))
        )
        xs = [ticks.index(row.settings.get(axis, "")) + shift for row in group]
        means = [row.over_seeds[name].mean for row in group]
        ax.plot(xs, means, marker="o", color=f"C{number}", label=label or None, linewidth=1.2)
        for x, row in zip(xs, group, strict=True):
            _plot_interval(ax, x, row.over_seeds[name], f"C{number}")
            single = [value.mean for _, value in row.single[name]]
            if len(single) > 1:
                ax.plot([x] * len(single), single, ".", color=f"C{number}", alpha=0.5, markersize=5)
    ax.set_xticks(range(len(ticks)), ticks)
    ax.set_xlim(-0.5, len(ticks) - 0.5)
    ax.set_xlabel(axis)
    ax.set_title(name, fontsize=10)
    ax.grid(axis="y", alpha=0.3)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    _colour_axes_grey(ax)
    if len(groups) > 1:
        ax.legend(fontsize=7, frameon=False)


def _plot_interval(ax: Any, x: float, value: HeadlineValue, colour: str) -> None:
    if value.low is not None and value.high is not None:
        ax.plot([x, x], [value.low, value.high], color=colour, linewidth=2, alpha=0.7)


def _colour_axes_grey(ax: Any) -> None:
    """Grey letters and lines, which are seen on light and on dark."""
    ax.tick_params(colors=GREY, labelsize=8)
    for part in (ax.title, ax.xaxis.label):
        part.set_color(GREY)
    for spine in ax.spines.values():
        spine.set_color(GREY)


def _get_tick_sort_key(text: str) -> tuple[int, float, str]:
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text
