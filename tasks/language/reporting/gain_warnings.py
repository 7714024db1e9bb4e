"""Reasons to doubt that a gain is what it seems: boxes of the report, by thresholds that stand here."""

from collections.abc import Iterator, Mapping
from math import isfinite

import pandas as pd

from tasks.common import plots
from tasks.language.reporting.differences import Difference
from tasks.language.reporting.gold import GOLD, PARTS, RIGHT
from tasks.language.reporting.metric_wording import format_estimate_interval, format_estimate_mean, format_gain_points
from tasks.language.reporting.reward_section import Section
from tasks.language.reporting.scoreboard import Results
from tasks.language.tables.problems import OTHER_KINDS

HELD_OUT_LOSS = "eval_loss"  # of a curve
LATE = 0.2  # share of the steps, the last ones, over which the held-out loss should not fall any more
FALLING = 0.02  # fall of it that is still one, as a share of the loss
GAINS = {RIGHT: "right answers", GOLD: "gold answers"}
PAID_IN = {
    **GAINS,
    "manner_greedy": "manner",
    **{f"{RIGHT}_{kind}": f"right answers to {text}" for kind, text in OTHER_KINDS.items()},
}
HALF = 0.5  # the win rate of two policies that are equally good


def iterate_unconverged_warnings(results: Results, drawn: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """The held-out loss of the baseline, or of the better control, still fell when its training ended, so that more of
    the same training is a gain too.
    """
    for name in dict.fromkeys((results.baseline, results.rival)):
        yield from _iterate_falling_losses(name, drawn.get(name))


def _iterate_falling_losses(name: str, curve: pd.DataFrame | None) -> Iterator[str]:
    if curve is None or HELD_OUT_LOSS not in curve:
        return
    measured = plots.select_measured_rows(curve, [HELD_OUT_LOSS]).dropna(subset=[HELD_OUT_LOSS])
    early = measured[measured["step"] <= (1 - LATE) * curve["step"].max()]
    if early.empty:
        return
    before = early.iloc[-1]
    after = curve.iloc[-1]
    fall = 1 - after[HELD_OUT_LOSS] / before[HELD_OUT_LOSS]
    if fall >= FALLING:
        yield (
            f"{name}: its held-out loss still fell by {100 * fall:.0f} % between step "
            f"{before['step']:.0f} and the last, "
            f"{after['step']:.0f}, from {before[HELD_OUT_LOSS]:.3f} to {after[HELD_OUT_LOSS]:.3f}."
        )


def iterate_tradeoff_warnings(results: Results) -> Iterator[str]:
    """A method has more right answers, or more gold ones, and less of what its readers want, or fewer right answers to
    problems of another kind.

    It is held against the baseline, and against the better control where that is another policy.
    """
    for name in results.methods:
        judged = results.judged[name]
        changes = results.changes[name]
        won = judged.get("win_rate_greedy")
        lost = []
        if won and won.high < HALF:
            ties = format_estimate_mean("tie_rate", judged["tie_rate_greedy"])
            lost.append(
                f"{format_estimate_mean('win_rate', won)} ({format_estimate_interval('win_rate', won)}) of the "
                f"comparisons with {results.baseline} "
                f"won, {ties} of them ties"
            )
        if traded := _format_tradeoff(changes, lost):
            yield f"{name}: {traded}."
        if over := _format_tradeoff(results.rival_changes.get(name, {}), []):
            learned = ", which learned from more demonstrations" if results.rival in results.controls else ""
            yield f"{name}, held against {results.rival}{learned}: {over}."


def _format_tradeoff(changes: Mapping[str, Difference], lost: list[str]) -> str:
    """What was gained and what was lost for it, `lost` among it; nothing where either is missing."""
    up, down = (
        {metric: change for metric, change in changes.items() if change.interval_sign == side} for side in (1, -1)
    )
    gained = [f"{format_gain_points(up[metric])} points of {what}" for metric, what in GAINS.items() if metric in up]
    fell = [
        f"{format_gain_points(down[metric])} points of {what}" for metric, what in PAID_IN.items() if metric in down
    ] + lost
    return f"{' and '.join(gained)}, but {' and '.join(fell)}" if gained and fell else ""


def iterate_manner_only_warnings(results: Results) -> Iterator[str]:
    """A method has more gold answers, and not because more of them are right; one that has more right answers is
    none.
    """
    for name in results.methods:
        changes = results.changes[name]
        if not {GOLD, *PARTS} <= {*changes} or changes["strict_greedy"].interval_sign > 0:
            continue
        manner, correctness = (changes[part] for part in PARTS)
        if changes[GOLD].interval_sign > 0 and manner.interval_sign > 0 and correctness.interval_sign <= 0:
            yield (
                f"{name}: of its {format_gain_points(changes[GOLD])} points of gold answers "
                f"{format_gain_points(manner)} are to problems that "
                f"{results.baseline} has right "
                f"too, and {format_gain_points(correctness)} to problems that are right for one of them alone."
            )


def iterate_reward_model_gain_warnings(reward: Section | None) -> Iterator[str]:
    """The reward model orders held-out comparisons no better than the policy that it started from does untrained."""
    if reward and reward.gain and isfinite(reward.gain.difference.low) and reward.gain.difference.low <= 0:
        yield reward.helped


def iterate_reward_correctness_warnings(reward: Section | None) -> Iterator[str]:
    """The reward model prefers a right answer to a wrong one less often than the policy that it started from does
    untrained.
    """
    if reward and reward.correctness and reward.correctness.difference.high < 0:
        yield reward.knows_answers
