from dataclasses import replace

import pytest

from tasks.common.estimates import Changes, Estimate
from tasks.language.reporting.differences import Difference
from tasks.language.reporting.headline import _signed, best, edges, headline, sentence
from tasks.language.reporting.scoreboard import Results
from tasks.language.reporting.strata import Components

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


def change(mean, low, high, *counts):
    return Difference(Estimate(mean, low, high), Changes(*counts, 0.5) if counts else None)


UP, LEVEL, DOWN = change(0.1, 0.05, 0.2, 7, 2), change(0.01, 0.0, 0.05, 3, 1), change(-0.2, -0.3, -0.1, 1, 5)


def results(*policies, components=None, controls=(), **changes):
    best = {"pretrained": 1.0, "sft": 0.3, "dpo": 0.5, "ppo": 0.3, "grpo": 1.0}
    return Results(
        dict.fromkeys(policies, JUDGED),
        "sft",
        {policy: best[policy] for policy in policies},
        {policy: {GREEDY: of, BEST: of, RUBRIC: of} for policy, of in changes.items()},
        dict.fromkeys(controls, UP),
        components or {},
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
    first, greedy, sampled, rubric = headline(results("pretrained", "sft", "dpo", pretrained=DOWN, dpo=dpo))
    assert first == "With sft, accuracy of the greedy answers was raised from pretrained's 50.0 % to 50.0 %."
    assert greedy == f"Over sft's 50.0 %, greedy accuracy was {told}"
    verb = told.split(" dpo")[0]
    assert sampled == (
        "Over its 50.0 % at its best temperature (at 0.3), accuracy at each policy's own best temperature "
        f"was {verb} dpo ({told.split('(')[1].split(' ')[0]} at 0.5)."
    )
    assert rubric.startswith(f"Over its 6.00 of 10 points, the rubric score of greedy answers was {verb} dpo (")


def test_sharper_alone_wins_nothing_in_the_headline():
    """A policy that is SFT at a lower temperature has the same greedy and best accuracy; only its mean@8 at 1.0 is far higher."""
    same = change(0.0, -0.01, 0.01, 4, 4)
    found = results("sft", "dpo", dpo=same)
    found.judged["dpo"] = {**JUDGED, "strict_mean_at_8_t1.0": Estimate(0.99, 0.98, 1.0)}
    found.changes["dpo"]["strict_mean_at_8_t1.0"] = change(0.49, 0.45, 0.52)
    assert not [sentence for sentence in headline(found) if "raised" in sentence or "99" in sentence]


def test_the_headline_of_one_and_of_many_policies():
    assert headline(results("sft")) == ["sft comes first: its greedy answers are right on 50.0 % of the problems."]
    greedy = headline(results("sft", "dpo", "ppo", "grpo", dpo=DOWN, ppo=LEVEL, grpo=UP))[1]
    order = [greedy.index(part) for part in ("raised by grpo", "not clearly changed by ppo", "lowered by dpo")]
    assert order == sorted(order)


def test_what_costs_no_training_is_told():
    found = results("sft", "dpo", dpo=UP, controls=[BEST, "strict_majority_at_8_t1.0"])
    assert headline(found)[-1] == (
        "Without any training, sft reaches 50.0 % (sampled at 0.3, its best), 50.0 % (majority@8 at 1.0)."
    )


def test_what_a_gain_at_the_highest_temperature_is_owed_to_is_told():
    total, share, rest = Estimate(0.22, 0.2, 0.24), Estimate(0.1, 0.09, 0.11), Estimate(0.06, 0.05, 0.07)
    parts = Components(total, share, rest, rest)
    found = headline(results("sft", "dpo", dpo=UP, components={"steps": {"t1.0": {"dpo": parts}}}))
    assert found[-1].endswith(
        "dpo gained 22.0 points; 10.0 of them are owed to giving more answers with steps, not to being right more often with or without them."
    )
    unsure = Components(Estimate(0.22, -0.1, 0.3), share, rest, rest)
    assert (
        len(headline(results("sft", "dpo", dpo=UP, components={"steps": {"t1.0": {"dpo": unsure}}}))) == len(found) - 1
    )


def test_a_best_temperature_at_the_end_of_the_candidates_is_told():
    assert edges(results("sft", "dpo", "ppo", "grpo")) == ["the lowest, 0.3, for sft, ppo", "the highest, 1, for grpo"]


def test_nothing_lies_beyond_greedy_answers():
    found = results("sft", "dpo", "grpo", dpo=UP, grpo=UP)
    found = replace(found, judged={name: {**JUDGED, "strict_validation_t0.0": HALF} for name in found.judged})
    found.best.update(sft=0.0, dpo=0.0)
    assert edges(found) == ["the highest, 1, for grpo"]
    assert headline(found)[2] == (
        "Over its 50.0 % at its best temperature (greedily), accuracy at each policy's own best temperature "
        "was raised by dpo (+10.0 greedily), grpo (+10.0 at 1)."
    )
    found.best.update(grpo=0.0)
    assert headline(found)[2] == (
        "Sampled at a temperature, none of them has a higher accuracy on validation problems than greedily."
    )


def test_a_small_change_is_not_told_as_none():
    assert [_signed(change, "+.2f") for change in (-0.0034, 0.0, -0.5)] == ["-0.003", "+0.00", "-0.50"]


@pytest.mark.parametrize(
    ("by", "told"),
    [
        ("strict_greedy", "By strict_greedy the best is dpo, with 0.7."),
        ("strict_validation", "By strict_validation the best are sft, dpo, with 0.5."),  # the largest that begin so
        ("-strict_greedy", "By strict_greedy the best is sft, with 0.5."),
        ("strict", "By strict the best is dpo, with 0.7."),
        ("strict_val", "No policy has a metric strict_val, by which report.best_by would name the best."),
    ],
)
def test_the_best_policy_is_named_by_the_metric_asked_for(by, told):
    found = results("sft", "dpo", dpo=UP)
    found.judged["dpo"] = {**JUDGED, GREEDY: Estimate(0.7, 0.6, 0.8)}
    assert best(found, by) == [told]


@pytest.mark.parametrize(
    ("of", "told"),
    [
        (UP, "The difference is +10.0 points (95 % interval +5.0 to +20.0)."),
        (LEVEL, "The difference is +1.0 points (95 % interval +0.0 to +5.0), which may be chance."),
        (DOWN, "The difference is -20.0 points (95 % interval -30.0 to -10.0)."),
    ],
)
def test_the_first_sentence_names_the_best_policy_what_it_reaches_and_its_gain(of, told):
    found = results("pretrained", "sft", "dpo", pretrained=DOWN, dpo=of)
    found.judged["dpo"] = {
        **JUDGED,
        "strict_validation_t0.3": Estimate(0.9, 0.8, 0.95),
        GREEDY: Estimate(0.7, 0.6, 0.8),
    }
    assert sentence(found, "strict_validation", 500) == (
        "dpo, the best policy on validation problems, answers 70.0 % of the 500 test problems right (greedy answers), "
        f"sft 50.0 %. {told}"
    )


def test_the_first_sentence_where_the_baseline_is_among_the_best_or_nothing_says_who_is():
    found = results("pretrained", "sft", "dpo", pretrained=DOWN, dpo=UP)
    right = "answers 50.0 % of the 30 test problems right (greedy answers)."
    assert sentence(found, "strict_validation", 30) == f"sft, the best policy on validation problems, {right}"
    assert sentence(found, "rouge", 30) == f"sft {right}"
