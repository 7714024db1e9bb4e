"""Differences with their intervals as a plot: one line each, in SVG without text, so that it can be as narrow as a
phone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

# of a line's drawing; the margin is a share of the scale
WIDTH = 1000
HEIGHT = 20
MARGIN = 0.06
STYLE = """
.intervals { display: grid; grid-template-columns: minmax(9rem, max-content) 1fr max-content; gap: .15rem .9rem; align-items: center; margin: .7rem 0 1.1rem;
  font-size: .85rem; font-variant-numeric: tabular-nums; }
.intervals svg { width: 100%; height: 1.3rem; display: block; overflow: visible; }
.intervals line { vector-effect: non-scaling-stroke; stroke-linecap: round; stroke: var(--soft); stroke-width: 2; }
.intervals .zero { stroke-width: 1; } .intervals .point { stroke-width: 8; }
.intervals .sure line:not(.zero) { stroke: var(--sure); }
.intervals small { color: var(--soft); }
.intervals .scale { position: relative; height: 1.1rem; color: var(--soft); font-size: .75rem; grid-column: 2; }
.intervals .scale span { position: absolute; transform: translateX(-50%); } .intervals .scale .end { right: 0; transform: none; }
@media (max-width: 40rem) { .intervals { grid-template-columns: 1fr; gap: 0; } .intervals .scale { grid-column: 1; }
  .intervals svg { margin-bottom: .1rem; } .intervals .told { margin-bottom: .7rem; } }
"""  # noqa: E501


@dataclass(frozen=True)
class IntervalLine:
    """A difference: its name, it in words, the two values in words, and the numbers; without an interval the ends are
    None.
    """

    label: str
    told: str
    values: str
    low: float | None
    difference: float
    high: float | None


def render_interval_plot(lines: Sequence[IntervalLine]) -> str:
    """The lines on one scale that holds 0; the colour tells those whose interval does not, whether that is good or
    bad.
    """
    numbers = [0.0] + [
        number for line in lines for number in (line.low, line.difference, line.high) if number is not None
    ]
    low = min(numbers)
    high = max(numbers)
    room = MARGIN * (high - low) or 1.0
    low = low - room
    high = high + room
    rows = "".join(
        f"<span>{escape(line.label)} "
        f"<small>{escape(line.values)}</small></span>{_render_interval_line(line, low, high)}"
        f'<span class="told">{escape(line.told)}</span>\n'
        for line in lines
    )
    zero = 100 * -low / (high - low)
    ends = f'<span class="scale"><span style="left: {zero:.1f}%">0</span><span class="end">{high:+.2g}</span></span>'
    return f'<div class="intervals">\n{rows}{ends}</div>'


def _render_interval_line(line: IntervalLine, low: float, high: float) -> str:
    def across(number: float) -> float:
        return round(WIDTH * (number - low) / (high - low), 1)

    def stroke(kind: str, begin: float, end: float, top: float = HEIGHT / 2, bottom: float = HEIGHT / 2) -> str:
        return f'<line class="{kind}" x1="{begin}" x2="{end}" y1="{top:g}" y2="{bottom:g}"/>'

    sure = ""
    whole = ""
    if line.low is not None and line.high is not None:
        sure = "sure" if line.low > 0 or line.high < 0 else ""
        whole = stroke("interval", across(line.low), across(line.high))
    zero = across(0.0)
    point = across(line.difference)
    return (
        f'<svg class="{sure}" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(line.told)}">'
        f"{stroke('zero', zero, zero, 0, HEIGHT)}{whole}{stroke('point', point, point)}</svg>"
    )
