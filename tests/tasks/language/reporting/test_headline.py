from dataclasses import replace
from math import inf

import pytest

from tasks.common.estimates import Changes, Estimate
from tasks.language.reporting.differences import Difference
from tasks.language.reporting.headline import (
    Draw,
    format_edge_temperatures,
    format_first_sentence,
    format_headline_sentences,
    format_missing_metric_notes,
    format_power_sentences,
    select_best_policies,
)
from tasks.language.reporting.scoreboard import Results

GREEDY, BEST, RUBRIC = "strict_greedy", "strict_mean_at_8_tbest", "rubric_greedy"
HALF = Estimate(0.5, 0.4, 0.6)
JUDGED = {
    GREEDY: HALF,
    "strict_mean_at_8_t1.0": HALF,
    BEST: HALF,
    "strict_majority_at_8_t1.0": HALF,
    RUBRIC: Estimate(6.0, 5.8, 6.2),
    "strict_validation_t0.3": HALF,
    "strict_validation_t1.0": HALF,
}
DRAW = Draw(seed=4, problems=500)
BEGINNING = "In this one draw (seed 4; another seed or processor would give other numbers) "


def change(mean, low, high, *counts):
    return Difference(Estimate(mean, low, high), Changes(*counts, 0.5) if counts else None, 0.5)


UP, LEVEL, DOWN = change(0.1, 0.05, 0.2, 7, 2), change(0.01, 0.0, 0.05, 3, 1), change(-0.2, -0.3, -0.1, 1, 5)


def results(*policies, untrained=(), controls=(), over_rival=None, **changes):
    best = {"pretrained": 1.0, "sft": 0.3, "dpo": 0.5, "ppo": 0.3, "grpo": 1.0}
    return Results(
        dict.fromkeys(policies, JUDGED),
        "sft",
        {policy: best[policy] for policy in policies},
        {policy: {GREEDY: of, BEST: of, RUBRIC: of} for policy, of in changes.items()},
        tuple(controls),
        dict.fromkeys(untrained, UP),
        over_rival or {},
    )


@pytest.mark.parametrize(
    ("dpo", "told"),
    [
        (UP, "raised by dpo (+10.0 points, 7 gained and 2 lost)."),
        (LEVEL, "not clearly changed by dpo (+1.0 points, 3 gained and 1 lost)."),  # its bound touches 0
        (DOWN, "lowered by dpo (-20.0 points, 1 gained and 5 lost)."),
    ],
)
def test_the_headline_is_honest(dpo, told):
    first, greedy = format_headline_sentences(results("pretrained", "sft", "dpo", pretrained=DOWN, dpo=dpo))
    assert first == "With sft, accuracy of the greedy answers was raised from pretrained's 50.0 % to 50.0 %."
    assert greedy == f"Over sft's 50.0 %, greedy accuracy was {told}"


def test_gold_answers_are_told_with_what_gains_them():
    found = results("sft", "dpo", dpo=UP)
    found.judged["sft"], found.judged["dpo"] = ({**JUDGED, "gold_greedy": HALF} for _ in range(2))
    found.changes["dpo"] |= {"gold_greedy": UP, "gold_by_manner": DOWN, "gold_by_correctness": LEVEL}
    assert format_headline_sentences(found)[-1] == (
        "Over its 50.0 % of gold answers, right and as a reader wants them, their share was raised "
        "by dpo (+10.0 points, "
        "-20.0 of them by manner and +1.0 by being right)."
    )


def test_sharper_alone_wins_nothing_in_the_headline():
    """A policy that is SFT at a lower temperature has the same greedy and best accuracy; only its mean@8 at 1.0 is far
    higher.
    """
    same = change(0.0, -0.01, 0.01, 4, 4)
    found = results("sft", "dpo", dpo=same)
    found.judged["dpo"] = {**JUDGED, "strict_mean_at_8_t1.0": Estimate(0.99, 0.98, 1.0)}
    found.changes["dpo"]["strict_mean_at_8_t1.0"] = change(0.49, 0.45, 0.52)
    assert not [sentence for sentence in format_headline_sentences(found) if "raised" in sentence or "99" in sentence]


def test_the_headline_of_one_and_of_many_policies():
    assert format_headline_sentences(results("sft")) == []
    [greedy] = format_headline_sentences(results("sft", "dpo", "ppo", "grpo", dpo=DOWN, ppo=LEVEL, grpo=UP))
    order = [greedy.index(part) for part in ("raised by grpo", "not clearly changed by ppo", "lowered by dpo")]
    assert order == sorted(order)


def test_what_costs_no_training_is_told():
    found = results("sft", "dpo", dpo=UP, untrained=[BEST, "strict_majority_at_8_t1.0"])
    assert format_headline_sentences(found)[-1] == (
        "Without any training, sft reaches 50.0 % (sampled at 0.3, its best), 50.0 % (majority@8 at 1.0)."
    )


def test_the_power_is_told_for_the_problems_that_change():
    """9 and 4 of 500 problems change, 1.3 % on average, and two policies are compared: 2.8 + .. of the square root of
    0.013 / 500.
    """
    [told] = format_power_sentences(results("sft", "dpo", "ppo", dpo=UP, ppo=LEVEL), 500)
    assert told.startswith("On average 1.3 % of the 500 problems change between sft and a later policy.")
    assert "a true difference of 1.3 points" in told, "all of them would have to go one way"
    many = change(0.05, 0.01, 0.09, 40, 15)
    [told] = format_power_sentences(results("sft", "dpo", dpo=many), 500)
    assert "a true difference of 4.1 points" in told
    assert format_power_sentences(results("sft"), 500) == []
    over_control = results("sft", "ppo", "dpo", dpo=UP, ppo=LEVEL, controls=["ppo"], over_rival={"dpo": many})
    over_control = replace(
        over_control, judged={**over_control.judged, "ppo": {**JUDGED, GREEDY: Estimate(0.6, 0.5, 0.7)}}
    )
    [_, told] = format_power_sentences(over_control, 500)
    assert told.startswith("On average 11.0 % of the 500 problems change between ppo and a method.")
    assert "a true difference of 4.1 points" in told, "one method, so that nothing is corrected"
    untested = Difference(Estimate(0.1, -inf, inf), Changes(3, 1, 0.6))
    assert format_power_sentences(results("sft", "dpo", dpo=untested), 20) == []


def test_a_best_temperature_at_the_end_of_the_candidates_is_told():
    assert format_edge_temperatures(results("sft", "dpo", "ppo", "grpo")) == [
        "the lowest, 0.3, for sft, ppo",
        "the highest, 1, for grpo",
    ]


def test_nothing_lies_beyond_greedy_answers():
    found = results("sft", "dpo", "grpo", dpo=UP, grpo=UP)
    found = replace(found, judged={name: {**JUDGED, "strict_validation_t0.0": HALF} for name in found.judged})
    found.best.update(sft=0.0, dpo=0.0)
    assert format_edge_temperatures(found) == ["the highest, 1, for grpo"]


@pytest.mark.parametrize(
    ("by", "metric", "best"),
    [
        ("strict_greedy", "strict_greedy", ["dpo"]),
        ("strict_validation", "strict_validation", ["sft", "dpo"]),  # the largest that begin so
        ("-strict_greedy", "strict_greedy", ["sft"]),
        ("strict", "strict", ["dpo"]),
        ("strict_val", "strict_val", []),
    ],
)
def test_the_best_policy_is_named_by_the_metric_asked_for(by, metric, best):
    found = results("sft", "dpo", dpo=UP)
    found.judged["dpo"] = {**JUDGED, GREEDY: Estimate(0.7, 0.6, 0.8)}
    assert select_best_policies(found, by, ["sft", "dpo"]) == (metric, best)
    assert bool(format_missing_metric_notes(found, by)) == (not best)


@pytest.mark.parametrize(
    ("of", "told"),
    [
        (UP, "and beats the baseline sft, with 50.0 %: +10.0 points (95 % interval +5.0 to +20.0)."),
        (
            LEVEL,
            "and does not beat the baseline sft, with 50.0 %: +1.0 points (95 % interval +0.0 to +5.0), undecided.",
        ),
        (DOWN, "and does not beat the baseline sft, with 50.0 %: -20.0 points (95 % interval -30.0 to -10.0)."),
        (
            change(0.0, -0.01, 0.02),
            "and does not beat the baseline sft, with 50.0 %: +0.0 points (95 % interval -1.0 to +2.0), equal "
            "within 3 points.",
        ),
        (
            Difference(Estimate(0.2, -inf, inf), None),
            "and does not beat the baseline sft, with 50.0 %: +20.0 points, and fewer than 30 problems say no more.",
        ),
    ],
)
def test_the_first_sentence_says_that_it_is_one_draw_who_is_best_and_whether_it_beats_its_rival(of, told):
    found = results("pretrained", "sft", "dpo", pretrained=DOWN, dpo=of, over_rival={"dpo": of})
    found.judged["dpo"] = {**JUDGED, GREEDY: Estimate(0.7, 0.6, 0.8)}
    right = "answers 70.0 % of the 500 test problems right (greedy answers)"
    assert format_first_sentence(found, "strict_validation", DRAW, 3.0) == f"{BEGINNING}dpo {right} {told}"


def test_the_best_method_counts_against_the_better_control_even_where_it_beats_the_baseline():
    over = {"dpo": replace(DOWN, chance=0.025), "grpo": replace(DOWN, chance=0.025)}
    found = results("sft", "ppo", "dpo", "grpo", dpo=UP, grpo=UP, ppo=UP, controls=["ppo"], over_rival=over)
    found.judged["ppo"] = {**JUDGED, GREEDY: Estimate(0.9, 0.8, 1.0), "strict_validation_t0.3": Estimate(0.9, 0.8, 1.0)}
    found.judged["grpo"] = {**JUDGED, "strict_validation_t0.3": Estimate(0.6, 0.5, 0.7)}
    assert format_first_sentence(found, "strict_validation", DRAW, 3.0) == (
        f"{BEGINNING}grpo, the best method on validation problems, answers 50.0 % of the 500 test problems right "
        "(greedy answers) "
        "and does not beat the control ppo, with 90.0 %: -20.0 points (97.5 % interval -30.0 to -10.0)."
    )


def test_the_first_sentence_where_there_is_no_method():
    found = results("pretrained", "sft", pretrained=DOWN)
    assert format_first_sentence(found, "strict_validation", DRAW, 3.0) == (
        f"{BEGINNING}sft answers 50.0 % of the 500 test problems right (greedy answers)."
    )


def test_where_no_policy_solves_anything_the_first_sentence_says_that_nothing_can_be_compared():
    found = results("sft", "dpo", dpo=LEVEL, over_rival={"dpo": LEVEL})
    nothing = {**JUDGED, GREEDY: Estimate(0.0, 0.0, 0.1)}
    found.judged.update(sft=nothing, dpo=nothing)
    assert format_first_sentence(found, "strict_validation", DRAW, 3.0) == (
        "No policy answers any of the 500 test problems right: a run of this size shows that the flow works, not "
        "that anything is learned."
    )
