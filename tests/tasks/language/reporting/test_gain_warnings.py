"""Each reason to doubt a gain: a run that gives it, and one that does not."""

from dataclasses import replace
from math import inf

import numpy as np
import pandas as pd
import pytest

from tasks.common.estimates import Estimate
from tasks.language.reporting import fault_warnings, gain_warnings
from tasks.language.reporting.differences import Difference
from tasks.language.reporting.reward_section import Gain, Section
from tasks.language.reporting.scoreboard import Results

UP, LEVEL, DOWN = (Difference(Estimate(mean, mean - 0.05, mean + 0.05), None) for mean in (0.3, 0.01, -0.3))
HALF = Estimate(0.5, 0.45, 0.55)
GOLD = ("gold_greedy", "gold_by_manner", "gold_by_correctness")
HELD = {"strict_greedy": HALF, "strict_mean_at_2_t1.0": HALF, "ended_greedy": Estimate(1.0, 0.9, 1.0)}


def results(controls=(), win_rate=HALF, **changes):
    """sft and ppo, which differ by these changes."""
    numbers = HELD
    rates = {"win_rate_greedy": win_rate, "tie_rate_greedy": Estimate(0.2, 0.1, 0.3)}
    level = dict.fromkeys(("strict_greedy", "strict_mean_at_2_t1.0", *GOLD, "manner_greedy"), LEVEL)
    return Results({"sft": numbers, "ppo": {**numbers, **rates}}, "sft", {}, {"ppo": {**level, **changes}}, controls)


def held_out_losses(*values, each=10):
    """The curve of a training that is evaluated every ten steps, with the last value in between."""
    losses = np.repeat(values, each)
    return {"sft": pd.DataFrame({"step": range(1, len(losses) + 1), "eval_loss": losses})}


@pytest.mark.parametrize(
    ("losses", "told"),
    [
        ((0.5, 0.4, 0.3, 0.25, 0.22, 0.2), "fell by 9 % between step 41 and the last, 60, from 0.220 to 0.200"),
        ((0.5, 0.4, 0.3, 0.22, 0.2, 0.199), None),  # 0.5 %
        ((0.5, 0.4, 0.3, 0.2, 0.2, 0.25), None),  # it rises: trained too long, which is another matter
        ((0.5,), None),  # measured once
    ],
)
def test_a_baseline_that_had_not_converged(losses, told):
    found = [*gain_warnings.iterate_unconverged_warnings(results(), held_out_losses(*losses))]
    assert [told in said for said in found] == ([True] if told else [])


def test_whether_a_baseline_converged_is_not_said_without_its_held_out_loss():
    assert not [
        *gain_warnings.iterate_unconverged_warnings(
            results(), {"sft": pd.DataFrame({"step": [1, 2], "loss": [2.0, 1.0]})}
        )
    ]
    assert not [*gain_warnings.iterate_unconverged_warnings(results(), {})]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"strict_greedy": UP, "gold_greedy": DOWN},
            "+30.0 points of right answers, but -30.0 points of gold answers.",
        ),
        ({"strict_greedy": UP, "manner_greedy": DOWN}, "but -30.0 points of manner."),
        (
            {"strict_greedy": UP, "win_rate": Estimate(0.3, 0.2, 0.4)},
            "but 30.0 % (20.0 to 40.0) of the comparisons with sft won, 20.0 % of them ties.",
        ),
        ({"strict_greedy": UP}, None),
        ({"strict_greedy": UP, "gold_greedy": UP}, None),
        ({"strict_greedy": LEVEL, "gold_greedy": DOWN}, None),  # nothing was gained
        (
            {"gold_greedy": UP, "strict_greedy_longer": DOWN},
            "+30.0 points of gold answers, but -30.0 points of right answers to problems of four and five steps.",
        ),
        (
            {"gold_greedy": UP, "strict_greedy": DOWN},
            "+30.0 points of gold answers, but -30.0 points of right answers.",
        ),
        ({"strict_greedy": UP, "strict_greedy_longer": LEVEL}, None),
        ({"strict_greedy": UP, "win_rate": Estimate(0.45, 0.4, 0.51)}, None),
        ({"strict_greedy": UP, "gold_greedy": DOWN, "controls": ("ppo",)}, None),
    ],
)
def test_a_gain_that_is_paid_for_elsewhere(given, told):
    found = [*gain_warnings.iterate_tradeoff_warnings(results(**given))]
    assert [told in said for said in found] == ([True] if told else [])


def test_a_gain_over_the_better_control_that_is_paid_for_elsewhere():
    control = {**HELD, "strict_greedy": Estimate(0.6, 0.5, 0.7)}
    level = results(strict_greedy=UP)
    against = {"strict_greedy": UP, "strict_greedy_longer": DOWN}
    judged = {"sft": level.judged["sft"], "sft_more": control, "ppo": level.judged["ppo"]}
    changes = {**level.changes, "sft_more": level.changes["ppo"]}
    found = replace(level, judged=judged, changes=changes, controls=("sft_more",), rival_changes={"ppo": against})
    assert [*gain_warnings.iterate_tradeoff_warnings(found)] == [
        "ppo, held against sft_more, which learned from more demonstrations: "
        "+30.0 points of right answers, but -30.0 points of right answers to problems "
        "of four and five steps."
    ]
    nothing = replace(found, rival_changes={"ppo": {**against, "strict_greedy": LEVEL}})
    assert not [*gain_warnings.iterate_tradeoff_warnings(nothing)]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"gold_greedy": UP, "gold_by_manner": UP},
            "+30.0 are to problems that sft has right too, and +1.0 to problems",
        ),
        ({"gold_greedy": UP, "gold_by_manner": UP, "gold_by_correctness": UP}, None),
        ({"gold_greedy": UP, "gold_by_correctness": UP}, None),
        ({"gold_greedy": UP, "gold_by_manner": UP, "strict_greedy": UP}, None),
        ({"gold_by_manner": UP}, None),
    ],
)
def test_gains_by_manner_alone(given, told):
    found = [*gain_warnings.iterate_manner_only_warnings(results(**given))]
    assert [told in said for said in found] == ([True] if told else [])


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [(-0.009, 0.007, "cannot be told"), (-0.03, -0.01, "did harm"), (0.01, 0.05, None), (-inf, inf, None)],
)
def test_a_reward_model_that_adds_nothing(low, high, told):
    mean = 0.0 if low == -inf else (low + high) / 2
    section = Section([], [], gain=Gain("log-probability", 0.7074, 0.7074 + mean, Estimate(mean, low, high)))
    found = [*gain_warnings.iterate_reward_model_gain_warnings(section)]
    assert [told in said for said in found] == ([True] if told else [])
    boxes = fault_warnings.collect_fault_warnings(results(), {}, {}, {}, section)
    assert [box.title for box in boxes] == (["The reward model adds nothing"] if told else [])
    assert not [*gain_warnings.iterate_reward_model_gain_warnings(None)]


@pytest.mark.parametrize(("low", "high", "shows"), [(-0.3, -0.2, True), (-0.05, 0.01, False), (-inf, inf, False)])
def test_a_reward_model_that_prefers_right_answers_less_than_the_policy(low, high, shows):
    mean = 0.0 if low == -inf else (low + high) / 2
    section = Section([], [], correctness=Gain("log-probability", 0.88, 0.88 + mean, Estimate(mean, low, high)))
    boxes = fault_warnings.collect_fault_warnings(results(), {}, {}, {}, section)
    assert [box.title for box in boxes] == (
        ["The reward model prefers right answers less than the policy does"] if shows else []
    )
    assert not [*gain_warnings.iterate_reward_correctness_warnings(None)]
