"""The report's pictures, by name: how good each policy is, how far it moved for its reward, and how it learned."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from tasks.common import plots
from tasks.common.estimates import Estimate
from tasks.language.reporting import scoreboard
from tasks.language.reporting.comparing import answer_temperature
from tasks.language.reporting.scoreboard import Results

OVERVIEW = {  # metric -> title; those that were measured of every policy are drawn first on the page
    "strict_greedy": "greedy answers that are right, %",
    "rubric_greedy": "rubric points of greedy answers, of 10",
    "reference_loss": "nats a token of the reference responses",
    "pair_accuracy": "held-out pairs that are told apart, %",
}
CHIEF = (  # of a stage's curves the ones that are shown unfolded: title -> column -> label; the first that are there
    ("loss", {"loss": "loss"}),
    ("implicit reward", {"rewards/chosen": "chosen", "rewards/rejected": "rejected"}),
    ("reward of the step's samples", {"reward": "reward"}),
    ("validation problems", {"eval_accuracy": "accuracy", "eval_rubric": "rubric / 10"}),
)


def figures(results: Results, drawn: Mapping[str, pd.DataFrame], calibration: Path) -> dict[str, str]:
    """The plots by name; what needs a reward model is left out without one."""
    found = {**overview(results), **learning(drawn)}
    found |= {f"curves-{name}": plots.curves(frame, f"curves-{name}") for name, frame in drawn.items() if len(frame)}
    shown = [results.baseline, *results.later]  # policies before the baseline did not start from it
    if results.answered:
        untrained = {
            f"{results.baseline}, {scoreboard.means(results, name)}": results.judged[results.baseline][name].mean
            for name in results.controls
        }
        lines = {name: _by_temperature(results, name) for name in shown}
        found["temperatures"] = plots.levels(
            lines, untrained, "temperature (0: greedy)", "strict accuracy", "temperatures"
        )
    kl, reward = (f"{kind}_sampled_{results.hottest}" for kind in ("kl", "reward"))
    if {kl, reward} <= results.judged[results.baseline].keys():
        points = {name: (results.judged[name][kl], results.judged[name][reward]) for name in shown}
        found["reward-kl"] = plots.scatter(points, "KL to the reference, nats an answer", "reward", "reward-kl")
    if calibration.is_file():
        found["calibration"] = plots.calibration(pd.read_csv(calibration), "calibration")
    return found


def overview(results: Results) -> dict[str, str]:
    """The first picture: of each policy what all of them were measured by, with intervals over problems; dashed is the baseline."""
    found = {}
    for metric, title in OVERVIEW.items():
        if not all(metric in judged for judged in results.judged.values()):
            continue
        scale = 100 if scoreboard.kind_of(metric) in scoreboard.SHARES else 1
        values = {
            policy: Estimate(*(scale * end for end in vars(judged[metric]).values()))
            for policy, judged in results.judged.items()
        }
        top = {100: 100.0, 1: 10.0 if metric.startswith("rubric") else 1.05 * max(one.high for one in values.values())}
        name = f"overview-{metric.replace('_', '-')}"
        found[name] = plots.categories(
            values,
            title,
            name,
            level=values[results.baseline].mean,
            limits=(0.0, top[scale]),
            width=plots.SMALL,
            form="{:.1f}" if scale == 100 else "{:.2f}",
        )
    return found


def learning(drawn: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Small plots of what matters most in each stage's curves; a stage that is trained by reward has no plot of its loss, which says little."""
    found = {}
    for stage, frame in drawn.items():
        for number, (title, columns) in enumerate(CHIEF):
            there = {label: column for column, label in columns.items() if column in frame}
            if frame.empty or not there or (title == "loss" and "reward" in frame):
                continue
            name = f"learning-{stage}-{number}"
            lines = {label: (frame["step"], frame[column]) for label, column in there.items()}
            found[name] = plots.panel(lines, f"{stage}: {title}", "step", name)
    return found


def _by_temperature(results: Results, policy: str) -> list[tuple[float, Estimate]]:
    """A policy's accuracy at every temperature that it was sampled at, greedy at 0."""
    judged, found = results.judged[policy], {0.0: results.judged[policy]["strict_greedy"]}
    for how in results.temperatures:
        found[answer_temperature(how, results.best, policy)] = judged[results.mean_at(how)]
    return sorted(found.items())
