"""The report's pictures, by name: what each policy changed, how far it moved for its reward, and how it learned."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from tasks.common import plots
from tasks.common.estimates import Estimate
from tasks.language.reporting import change_figure, scoreboard
from tasks.language.reporting.comparing import get_answer_temperature
from tasks.language.reporting.gold import GOLD
from tasks.language.reporting.scoreboard import Results

CHANGES = {  # metric -> how the first figure calls its differences to the baseline's, and what a unit of it is there
    "strict_greedy": ("right answers", 100.0),
    GOLD: ("gold answers", 100.0),
    "reference_loss": ("loss of the reference responses", 1.0),
}


@dataclass(frozen=True)
class Chief:
    """Curves that are shown unfolded, in one small plot: column -> label, and what a reader has to know of them."""

    title: str
    columns: Mapping[str, str]
    caption: str


CHIEF = (  # of a stage the ones that are there
    Chief("loss", {"loss": "loss"}, "The loss of each step's batch, before the step."),
    Chief("held-out loss", {"eval_loss": "loss"}, "The loss of held-out demonstrations, which are not learned from."),
    Chief(
        "implicit reward",
        {"rewards/chosen": "chosen", "rewards/rejected": "rejected"},
        "Of each step's pairs: beta times what the answers gained in log-probability over the reference.",
    ),
    Chief(
        "reward of the step's samples",
        {"reward": "reward"},
        "The mean reward of the answers to each step's training prompts{}.",
    ),
    Chief(
        "validation problems",
        {"eval_accuracy": "accuracy", "eval_rubric": "rubric / 10"},
        "One answer to each validation problem{}, the same draw each time. A dot is one measurement.",
    ),
)


def render_report_figures(results: Results, drawn: Mapping[str, pd.DataFrame], calibration: Path) -> dict[str, str]:
    """The plots by name; what needs a reward model is left out without one."""
    pictures = {**render_change_overview(results), **render_learning_panels(drawn)}
    pictures |= {
        f"curves-{name}": plots.render_metric_curves(frame, f"curves-{name}")
        for name, frame in drawn.items()
        if len(frame)
    }
    shown = [results.baseline, *results.later]  # policies before the baseline did not start from it
    if results.answered:
        untrained = {
            f"{results.baseline}, {scoreboard.format_untrained_method(results, name)}": results.judged[
                results.baseline
            ][name].mean
            for name in results.untrained
        }
        lines = {name: _list_accuracies_by_temperature(results, name) for name in shown}
        pictures["temperatures"] = plots.render_lines_with_levels(
            lines, untrained, "temperature (0: greedy)", "strict accuracy", "temperatures"
        )
    kl, reward = (f"{kind}_sampled_{results.highest_temperature}" for kind in ("kl", "reward"))
    if {kl, reward} <= results.judged[results.baseline].keys():
        points = {name: (results.judged[name][kl], results.judged[name][reward]) for name in shown}
        pictures["reward-kl"] = plots.render_scatter_plot(
            points, "KL to the reference, nats an answer", "reward", "reward-kl"
        )
    if calibration.is_file():
        pictures["calibration"] = plots.render_calibration_plot(pd.read_csv(calibration), "calibration")
    return pictures


def render_change_overview(results: Results) -> dict[str, str]:
    """The first picture: what each policy after the baseline changed; with right answers also gold ones.

    None where none can be told.
    """
    series: dict[str, dict[str, Estimate]] = {}
    for metric, (title, scale) in CHANGES.items():
        changes = {name: results.changes[name][metric] for name in results.later if metric in results.changes[name]}
        if changes:
            series[title] = {
                f"{name}, control" if name in results.controls else name: Estimate(
                    *(scale * end for end in vars(change.estimate).values())
                )
                for name, change in changes.items()
            }
    unit = "points" if results.answered else "nats a token; less is better"
    x = f"difference to {results.baseline}, {unit}"
    return (
        {"changes": change_figure.render_change_figure(series, x, "changes", "+.1f" if results.answered else "+.2f")}
        if series
        else {}
    )


def render_learning_panels(drawn: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Small plots of what matters most in each stage's curves; a stage that is trained by reward has no plot of its
    loss, which says little.
    """
    pictures = {}
    for stage, frame in drawn.items():
        for number, chief in enumerate(CHIEF):
            if not (columns := _select_panel_columns(chief, frame)):
                continue
            name = f"learning-{stage}-{number}"
            seldom = any(column.startswith(plots.SELDOM) for column in columns)
            shown = plots.select_measured_rows(frame, list(columns)) if seldom else frame
            lines = {label: (shown["step"], shown[column]) for column, label in columns.items()}
            pictures[name] = plots.render_curve_panel(lines, f"{stage}: {chief.title}", "step", name, dots=seldom)
    return pictures


def _select_panel_columns(chief: Chief, frame: pd.DataFrame) -> dict[str, str]:
    if frame.empty or (chief.title == "loss" and "reward" in frame):
        return {}
    return {column: label for column, label in chief.columns.items() if column in frame}


def format_learning_captions(drawn: Mapping[str, pd.DataFrame], temperatures: Mapping[str, float]) -> dict[str, str]:
    """What a reader has to know of each of `learning`; `temperatures` are those at which a stage sampled."""
    return {
        f"learning-{stage}-{number}": chief.caption.format(
            f", sampled at temperature {temperatures[stage]:g}" if stage in temperatures else ""
        )
        for stage, frame in drawn.items()
        for number, chief in enumerate(CHIEF)
        if _select_panel_columns(chief, frame)
    }


def _list_accuracies_by_temperature(results: Results, policy: str) -> list[tuple[float, Estimate]]:
    """A policy's accuracy at every temperature that it was sampled at, greedy at 0."""
    judged = results.judged[policy]
    accuracies = {0.0: results.judged[policy]["strict_greedy"]}
    for how in results.temperatures:
        accuracies[get_answer_temperature(how, results.best, policy)] = judged[results.get_mean_metric(how)]
    return sorted(accuracies.items())
