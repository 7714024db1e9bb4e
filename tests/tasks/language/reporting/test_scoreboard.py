from dataclasses import replace
from math import inf

import pytest

from tasks.common.estimates import Changes, Estimate
from tasks.language.reporting.differences import Difference
from tasks.language.reporting.metric_wording import (
    format_change_verdict,
    format_estimate_interval,
    format_estimate_mean,
    format_metric_label,
    format_p_value,
    format_short_metric,
    format_signed_number,
)
from tasks.language.reporting.scoreboard import (
    Results,
    build_score_tables,
    collect_metric_meanings,
    format_table_notes,
    format_untrained_method,
)

SURE, UNSURE, WORSE = Estimate(0.1, 0.05, 0.15), Estimate(0.02, -0.01, 0.05), Estimate(-0.1, -0.2, -0.05)
NAMES = (
    "strict_greedy",
    "strict_mean_at_8_t0.5",
    "strict_majority_at_8_t0.5",
    "strict_best_of_8_t0.5",
    "strict_mean_at_8_t1.0",
    "strict_mean_at_8_tbest",
    "strict_validation_t0.5",
    "lenient_greedy",
    "lenient_mean_at_8_t1.0",
    "steps_sampled_t0.5",
    "rubric_greedy",
    "rubric_sampled_tbest",
    "kl_sampled_t1.0",
)


LENIENT = {
    "pretrained": {},
    "sft": {},
    "dpo": {"lenient_greedy": Estimate(0.6, 0.5, 0.7)},
}  # is not what is strictly right


def results(changes=None, controls=(), untrained=None, over_rival=None, **judged):
    every = {name: Estimate(0.5, 0.4, 0.6) for name in NAMES}
    judged = judged or {"pretrained": {}, "sft": {}, "dpo": {}}
    return Results(
        {policy: {**every, **of} for policy, of in judged.items()},
        "sft",
        dict.fromkeys(judged, 0.3),
        changes or {},
        tuple(controls),
        untrained or {},
        over_rival or {},
    )


def test_the_first_table_has_what_each_policy_changed_and_the_verdict():
    changes = {"dpo": {"strict_greedy": Difference(UNSURE, Changes(5, 4, 1.0), 0.9)}}
    found = build_score_tables(results(changes=changes), 3.0)[0]
    assert found.columns == ["right answers", "change", "gained, lost", "verdict over sft", "rubric"]
    rows = dict(found.rows)
    assert list(rows) == ["pretrained", "sft", "dpo"]
    assert [cell["text"] for cell in rows["sft"][:4]] == ["50.0 %", "", "", ""]
    assert [cell["text"] for cell in rows["dpo"][:4]] == ["50.0 %", "+2.0", "5, 4", "undecided"]
    assert [cell["interval"] for cell in rows["dpo"][:4]] == ["40.0 to 60.0", "-1.0 to +5.0", "", "p = 0.900"]


def test_an_interval_that_is_not_at_95_percent_names_its_level():
    changes = {"dpo": {"strict_greedy": Difference(UNSURE, Changes(5, 4, 1.0), 0.9, chance=0.025)}}
    rows = dict(build_score_tables(results(changes=changes), 3.0)[0].rows)
    assert rows["dpo"][1]["interval"] == "-1.0 to +5.0 at 97.5 %"


def test_controls_are_called_so_and_methods_are_held_against_the_better():
    judged = {"sft": {}, "sft_more": {"strict_greedy": Estimate(0.6, 0.5, 0.7)}, "sft_less": {}, "dpo": {}}
    over = {"dpo": Difference(WORSE, Changes(3, 9, 0.01), 0.01)}
    found = results(controls=("sft_less", "sft_more"), over_rival=over, **judged)
    assert (found.rival, found.methods) == ("sft_more", ["dpo"])
    table = build_score_tables(found)[0]
    assert table.columns[4] == "over sft_more"
    rows = dict(table.rows)
    assert list(rows) == ["sft", "sft_more, control", "sft_less, control", "dpo"]
    assert (rows["dpo"][4]["text"], rows["dpo"][4]["mark"]) == ("-10.0", "▼")
    assert rows["sft_more, control"][4]["text"] == ""
    worse = replace(found, controls=("sft_less",))
    assert worse.rival == "sft_less", "as good as the baseline"
    below = {**judged, "sft_less": {"strict_greedy": Estimate(0.4, 0.3, 0.5)}}
    assert results(controls=("sft_less",), **below).rival == "sft", "no control that lost is one to beat"


def test_gold_answers_stand_in_the_first_table_with_what_gains_them():
    numbers = {"gold_greedy": Estimate(0.3, 0.2, 0.4), "manner_greedy": Estimate(0.7, 0.6, 0.8)}
    judged = {"sft": numbers, "dpo": numbers}
    parts = {"gold_greedy": SURE, "gold_by_manner": SURE, "gold_by_correctness": UNSURE}
    changes = {"dpo": {name: Difference(estimate, None, 0.01) for name, estimate in parts.items()}}
    table = build_score_tables(results(changes=changes, **judged))[0]
    assert table.columns[4:] == ["gold", "change", "by manner", "by correctness", "manner"]
    cells = dict(table.rows)["dpo"][4:]
    assert [(cell["text"], cell["mark"]) for cell in cells] == [
        *(("30.0 %", ""), ("+10.0", "▲"), ("+10.0", "▲"), ("+2.0", ""), ("70.0 %", ""))
    ]


def test_what_the_baseline_reaches_untrained_has_a_table_of_its_own():
    gain = Difference(SURE, Changes(30, 10, 0.0022), 0.0022)
    found = build_score_tables(results(untrained={"strict_majority_at_8_t0.5": gain}))[1]
    assert found.title == "What sft reaches without training"
    [(name, cells)] = found.rows
    assert name == "majority@8 at 0.5"
    assert [cell["text"] for cell in cells] == ["50.0 %", "+10.0", "30, 10"]


def test_arrows_follow_the_paired_interval_and_stand_in_the_first_table_alone():
    """The policies' own intervals are equal here; only the interval of the difference decides."""
    changes = {"dpo": {"strict_greedy": Difference(SURE, None), "lenient_greedy": Difference(SURE, None)}}
    changes["dpo"] |= {"rubric_greedy": Difference(WORSE, None)}
    found = {table.title: table for table in build_score_tables(results(changes=changes, **LENIENT))}
    dpo = {title: dict(table.rows).get("dpo", []) for title, table in found.items()}
    assert [cell["mark"] for cell in dpo["At a glance"]] == ["", "▲", "", "", "▼"]
    assert not [cell for title, cells in dpo.items() if title != "At a glance" for cell in cells if cell["mark"]]


@pytest.mark.parametrize(
    ("estimate", "expected"),
    [
        (SURE, "above"),
        (WORSE, "below"),
        (UNSURE, "undecided"),
        (Estimate(0.0, -0.02, 0.029), "equal within 3 points"),
        (Estimate(0.0, -0.02, 0.031), "undecided"),
        (Estimate(0.01, 0.001, 0.02), "above"),
        (Estimate(0.0, -inf, inf), "undecided"),
    ],
)
def test_the_verdict(estimate, expected):
    assert format_change_verdict(Difference(estimate, None), 3.0) == expected


def test_a_rounded_number_does_not_cross_its_level():
    assert [format_p_value(p) for p in (0.0499, 0.0501, 0.3, 0.0001)] == [
        "p = 0.04990",
        "p = 0.050",
        "p = 0.300",
        "p < 0.001",
    ]
    assert [format_signed_number(value) for value in (0.04, -0.04, 0.0, 3.14)] == ["+0.04", "-0.04", "+0.0", "+3.1"]


def test_what_the_marks_rest_on_is_said():
    tested = Difference(SURE, None, 0.01)
    one, two = results(changes={"dpo": {"x": tested}}), results(changes={"dpo": {"x": tested}, "ppo": {"x": tested}})
    assert not [line for line in format_table_notes(one) if "Holm" in line]
    assert [line for line in format_table_notes(two) if "Holm's procedure for the 2 policies" in line]
    few = results(changes={"dpo": {"x": Difference(Estimate(0.1, -inf, inf), None)}})
    assert format_table_notes(few) == ["Of fewer than 30 problems no interval is shown and nothing is marked."]


def test_every_metric_stands_in_the_table_of_its_temperature():
    found = {table.title: table.columns for table in build_score_tables(results(**LENIENT))}
    assert found == {
        "At a glance": found["At a glance"],
        "Lenient accuracy": ["greedy", "mean@8 at 1.0"],
        "Strict accuracy at temperature 0.5": ["mean@8", "majority@8", "best of 8"],
        "Strict accuracy at temperature 1.0": ["mean@8"],
        "Strict accuracy at each policy's best temperature": ["mean@8"],
        "Greedy answers": ["rubric"],
        "Answers sampled at temperature 0.5": ["steps"],
        "Answers sampled at temperature 1.0": ["kl"],
        "Answers sampled at each policy's best temperature": ["rubric"],
    }


def test_what_repeats_another_number_is_left_out():
    titles = [table.title for table in build_score_tables(results(**LENIENT))]
    assert "Lenient accuracy" in titles
    assert "Lenient accuracy" not in [table.title for table in build_score_tables(results())]
    assert (
        "lenient" in collect_metric_meanings(results(**LENIENT)),
        "lenient" in collect_metric_meanings(results()),
    ) == (True, False)
    judged = {name: {"strict_pass_at_1_t0.5": Estimate(0.5, 0.4, 0.6)} for name in ("sft", "dpo")}
    judged["dpo"]["strict_pass_at_8_t0.5"] = Estimate(0.9, 0.8, 0.95)
    columns = {table.title: table.columns for table in build_score_tables(results(**judged))}[
        "Strict accuracy at temperature 0.5"
    ]
    assert "pass@8" in columns
    assert "pass@1" not in columns
    greedy = replace(results(), best={"pretrained": 0.0, "sft": 0.0, "dpo": 0.0})
    assert not any("best temperature" in table.title for table in build_score_tables(greedy))


def test_why_answers_are_not_right_is_shown_where_there_are_such_answers():
    """One policy's greedy answer in ten takes too long to judge; none is unjudged."""
    judged = {
        name: {"timed_out_greedy": Estimate(0.0, 0.0, 0.1), "unjudged_greedy": Estimate(0.0, 0.0, 0.1)}
        for name in ("sft", "dpo")
    }
    never, some = results(**judged), {**judged, "dpo": {**judged["dpo"], "timed_out_greedy": Estimate(0.1, 0.0, 0.2)}}
    assert {table.title: table.columns for table in build_score_tables(never)}["Greedy answers"] == ["rubric"]
    assert not {"timed_out", "unjudged"} & {*collect_metric_meanings(never)}
    [found] = [table for table in build_score_tables(results(**some)) if table.title == "Greedy answers"]
    assert found.columns == ["rubric", "timed out"]
    assert dict(found.rows)["dpo"][1]["text"] == "10.0 %"
    assert "timed_out" in collect_metric_meanings(results(**some))


def test_problems_of_other_kinds_have_a_table():
    longer = {"strict_greedy_longer": Estimate(0.2, 0.1, 0.3)}
    judged = {"sft": longer, "dpo": longer}
    [table] = [one for one in build_score_tables(results(**judged)) if "other kinds" in one.title]
    assert table.columns == ["longer"]
    assert dict(table.rows)["dpo"][0]["text"] == "20.0 %"


@pytest.mark.parametrize(
    ("metric", "long", "brief"),
    [
        ("strict_greedy", "greedy", "greedy"),
        ("strict_mean_at_8_t0.5", "mean@8 at 0.5", "mean@8"),
        ("strict_pass_at_8_t1.0", "pass@8 at 1.0", "pass@8"),
        ("lenient_best_of_8_tbest", "best of 8 at its best temperature", "best of 8"),
        ("gold_mean_at_8_t0.5", "mean@8 at 0.5", "mean@8"),
        ("manner_greedy", "manner, greedy", "manner"),
        ("strict_greedy_longer", "longer", "longer"),
        ("gold_greedy_words", "words, gold", "words, gold"),
        ("win_rate_sampled_t1.0", "win rate at 1.0", "win rate"),
        ("win_rate_greedy", "win rate, greedy", "win rate"),
    ],
)
def test_names_of_metrics_as_people_read_them(metric, long, brief):
    assert (format_metric_label(metric), format_short_metric(metric)) == (long, brief)


def test_names_of_controls():
    assert format_untrained_method(results(), "strict_mean_at_8_tbest") == "sampled at 0.3, its best"
    assert format_untrained_method(results(), "strict_best_of_8_t1.0") == "best of 8 at 1.0"


def test_the_table_at_best_temperatures_says_which_they_are():
    found = replace(results(), best={"pretrained": 0.3, "sft": 0.0, "dpo": 0.0})
    [table] = [
        one for one in build_score_tables(found) if one.title == "Strict accuracy at each policy's best temperature"
    ]
    assert [name for name, _ in table.rows] == ["pretrained, at 0.3", "sft, greedily", "dpo, greedily"]


def test_numbers():
    six = Estimate(6.0, 5.8, 6.2)
    assert (format_estimate_mean("ended", six), format_estimate_interval("ended", Estimate(0.5, 0.401, 0.6))) == (
        "600.0 %",
        "40.1 to 60.0",
    )
    assert (format_estimate_mean("rubric", six), format_estimate_interval("rubric", six)) == ("6.00", "5.80 to 6.20")
    assert format_estimate_interval("kl", Estimate(0.0, -0.001, 0.001)) == "0.00 to 0.00"
    assert format_estimate_interval("ended", Estimate(0.1, -0.37, 0.59)) == "0.0 to 59.0", (
        "Student's interval leaves it"
    )
    assert format_estimate_interval("ended", Estimate(0.9, 0.8, 1.2)) == "80.0 to 100.0"
