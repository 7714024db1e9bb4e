"""The statistics of the record in words and as a drawing, for the page and for a terminal."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tasks.common.estimates import Estimate
from tasks.extensions.labelling.assignment import Assignment, Progress
from tasks.extensions.labelling.measures.statistics import JudgementStatistics, Statistics, compute_judgement_statistics
from tasks.extensions.labelling.measures.strengths import Strength
from tasks.language.judgements.judgement_log import JudgementRecord

MOST_DISPUTED = 20
NONE = "\N{EN DASH}"  # there is nothing to say it from
MINUS = "\N{MINUS SIGN}"
# of the drawing, in pixels
WIDTH = 640
LEFT = 150
RIGHT = 20
ROW = 34
MEASURES = {
    "gold": ("Right on gold items", "how often a judgement says what is expected"),
    "repeats": ("Same on repeats", "how often a person says the same of an item again"),
    "first_shown": ("First shown wins", "0.50 without a bias for the side on which an answer is shown"),
    "longer": ("Longer wins", "0.50 if length does not sway anybody"),
}


def build_statistics_context(
    record: JudgementRecord, assignment: Assignment, pipeline: Progress | None
) -> dict[str, Any]:
    """All that the statistics page shows; `pipeline` is the progress of what the pipeline waits for, if it does."""
    summary = compute_judgement_statistics(record)
    progress = pipeline or assignment.compute_total_progress(record)
    return {
        "progress": progress,
        "waits": pipeline is not None,
        "left": _format_duration(progress.seconds_left) if progress.seconds_left else "",
        "found": summary,
        "hours": _format_duration(summary.hours * 3600),
        "measures": [
            (name, format_estimate(getattr(summary.measured, key)), hint) for key, (name, hint) in MEASURES.items()
        ],
        "each": format_seconds(summary.seconds),
        "people": [
            (row, format_seconds(row.seconds), [format_estimate(getattr(row.measured, key)) for key in MEASURES])
            for row in summary.people
        ],
        "measure_names": [name for name, _ in MEASURES.values()],
        "agreement": _format_agreement_rows(summary),
        "strengths": [
            (row, format_number(row.strength), format_bracketed_interval(row.low, row.high))
            for row in summary.strengths
        ],
        "plot": compute_strength_plot_layout(summary.strengths),
        "disputed": summary.disputed[:MOST_DISPUTED],
    }


def format_statistics_lines(record: JudgementRecord) -> list[str]:
    """The same for a terminal."""
    summary = compute_judgement_statistics(record)
    report = [f"{summary.judgements} judgements of {summary.items} items in {_format_duration(summary.hours * 3600)}"]
    report += [f"{name}: {format_estimate(getattr(summary.measured, key))}" for key, (name, _) in MEASURES.items()]
    report += [
        f"agreement, {row.question}: {format_number(row.alpha)} ({row.units} units)" for row in summary.agreement
    ]
    for row in summary.people:
        report.append(
            f"{row.person}: {row.judgements} judgements, {format_seconds(row.seconds)} each, "
            f"{_format_measures(row.measured)}"
        )
    report += [
        f"{row.name}: strength {format_number(row.strength)}{format_bracketed_interval(row.low, row.high)}, "
        f"{row.wins} wins, {row.ties} ties, {row.losses} losses"
        for row in summary.strengths
    ]
    return report


def _format_measures(measured: JudgementStatistics) -> str:
    return ", ".join(f"{name.lower()} {format_estimate(getattr(measured, key))}" for key, (name, _) in MEASURES.items())


def _format_agreement_rows(summary: Statistics) -> list[Mapping[str, Any]]:
    return [
        {
            "question": row.question,
            "alpha": format_number(row.alpha),
            "by_level": [f"{level} {format_number(value)}" for level, value in row.by_level.items()],
            "by_person": [f"{person} {format_number(value)}" for person, value in row.by_person.items()],
            "units": row.units,
        }
        for row in summary.agreement
    ]


def compute_strength_plot_layout(strengths: Sequence[Strength]) -> dict[str, Any]:
    """Where the dots, intervals and ticks of the strengths stand; an interval without an end reaches the edge."""
    ends = [
        value
        for strength in strengths
        for value in (strength.strength, strength.low, strength.high)
        if math.isfinite(value)
    ]
    low = min([*ends, -0.5]) - 0.2
    high = max([*ends, 0.5]) + 0.2

    def across(value: float) -> float:
        inside = min(max(value, low), high)
        return round(LEFT + (inside - low) / (high - low) * (WIDTH - LEFT - RIGHT), 1)

    step = next(step for step in (0.5, 1, 2, 5, 10, 20, 50) if (high - low) / step <= 8 or step == 50)
    ticks = [step * index for index in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return {
        "width": WIDTH,
        "left": LEFT,
        "height": ROW * len(strengths) + 40,
        "rows": [
            (strength.name, ROW * index + 20, across(strength.low), across(strength.strength), across(strength.high))
            for index, strength in enumerate(strengths)
        ],
        "ticks": [(across(tick), f"{tick:g}".replace("-", MINUS)) for tick in ticks],
    }


def format_number(value: float | None) -> str:
    """Two decimals, with a minus sign that is one."""
    return NONE if value is None else f"{value:.2f}".replace("inf", "∞").replace("-", MINUS)


def format_bracketed_interval(low: float, high: float) -> str:
    """An interval in brackets, with a space before."""
    return f" [{format_number(low)}, {format_number(high)}]"


def format_estimate(share: Estimate | None) -> str:
    """A share with its 95 % interval."""
    return NONE if share is None else format_number(share.mean) + format_bracketed_interval(share.low, share.high)


def format_seconds(duration: float | None) -> str:
    """Whole seconds."""
    return NONE if duration is None else f"{duration:.0f} s"


def _format_duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02} min" if minutes >= 60 else f"{minutes} min"
