"""What came out of a sweep against what it varied, as SVG: a panel for each metric, a point for each value with its interval."""

from collections.abc import Sequence
from io import StringIO
from typing import Any

from flows.sweeps.outcome import Row, Value

WIDTH, HEIGHT = 5.2, 3.4  # inches of a panel
LINES = 8  # settings of the other parameters that a panel can tell apart
GREY = "#777777"


def figure(rows: Sequence[Row], names: Sequence[str]) -> str:
    """The panels side by side; empty where nothing varies but the seed and there is one setting."""
    from matplotlib.figure import Figure

    axis = _across(rows)
    if not names:
        return ""
    made = Figure(figsize=(WIDTH * len(names), HEIGHT), layout="constrained")
    for place, name in zip(made.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        _panel(place, rows, name, axis)
    text = StringIO()
    made.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return text.getvalue().partition("<svg")[1] + text.getvalue().partition("<svg")[2]


def _across(rows: Sequence[Row]) -> str:
    """The parameter with the most values; it runs along the panel."""
    values: dict[str, set[str]] = {}
    for row in rows:
        for key, value in row.settings.items():
            values.setdefault(key, set()).add(value)
    return max(values, key=lambda key: len(values[key]), default="")


def _panel(place: Any, rows: Sequence[Row], name: str, axis: str) -> None:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        others = ", ".join(f"{key} {value}" for key, value in row.settings.items() if key != axis)
        groups.setdefault(others, []).append(row)
    ticks = sorted({row.settings.get(axis, "") for row in rows}, key=_order)
    shown = list(groups.items())[:LINES]
    for number, (label, group) in enumerate(shown):
        shift = 0.12 * (number - (len(shown) - 1) / 2)
        group = sorted(
            (row for row in group if name in row.over_seeds), key=lambda row: ticks.index(row.settings.get(axis, ""))
        )
        xs = [ticks.index(row.settings.get(axis, "")) + shift for row in group]
        means = [row.over_seeds[name].mean for row in group]
        place.plot(xs, means, marker="o", color=f"C{number}", label=label or None, linewidth=1.2)
        for x, row in zip(xs, group, strict=True):
            _interval(place, x, row.over_seeds[name], f"C{number}")
            single = [value.mean for _, value in row.single[name]]
            if len(single) > 1:
                place.plot([x] * len(single), single, ".", color=f"C{number}", alpha=0.5, markersize=5)
    place.set_xticks(range(len(ticks)), ticks)
    place.set_xlim(-0.5, len(ticks) - 0.5)
    place.set_xlabel(axis)
    place.set_title(name, fontsize=10)
    place.grid(axis="y", alpha=0.3)
    for side in ("top", "right"):
        place.spines[side].set_visible(False)
    _readable(place)
    if len(groups) > 1:
        place.legend(fontsize=7, frameon=False)


def _interval(place: Any, x: float, value: Value, colour: str) -> None:
    if value.low is not None and value.high is not None:
        place.plot([x, x], [value.low, value.high], color=colour, linewidth=2, alpha=0.7)


def _readable(place: Any) -> None:
    """Grey letters and lines, which are seen on light and on dark."""
    place.tick_params(colors=GREY, labelsize=8)
    for part in (place.title, place.xaxis.label):
        part.set_color(GREY)
    for spine in place.spines.values():
        spine.set_color(GREY)


def _order(text: str) -> tuple[int, float, str]:
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text
