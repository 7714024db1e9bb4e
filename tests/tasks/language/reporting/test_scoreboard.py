from dataclasses import replace

import pytest

from tasks.common.estimates import Changes, Estimate
from tasks.language.reporting.differences import Difference
from tasks.language.reporting.scoreboard import Results, interval, label, meaning, means, short, tables, text
from tasks.language.reporting.strata import Components

SURE, UNSURE, WORSE = Estimate(0.1, 0.05, 0.15), Estimate(0.02, -0.01, 0.05), Estimate(-0.1, -0.2, -0.05)
NAMES = (
    "strict_greedy",
    "strict_mean_at_8_t0.5",
    "strict_majority_at_8_t0.5",
    "strict_best_of_8_t0.5",
    "strict_with_steps_t0.5",
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


def results(changes=None, controls=None, components=None, **judged):
    every = {name: Estimate(0.5, 0.4, 0.6) for name in NAMES}
    judged = judged or {"pretrained": {}, "sft": {}, "dpo": {}}
    return Results(
        {policy: {**every, **of} for policy, of in judged.items()},
        "sft",
        dict.fromkeys(judged, 0.3),
        changes or {},
        controls or {},
        components or {},
    )


def test_the_first_table_has_the_few_numbers_and_the_controls():
    gain = Difference(SURE, Changes(30, 10, 0.0022))
    found = tables(
        results(
            changes={"dpo": {"strict_greedy": Difference(UNSURE, Changes(5, 4, 1.0)), "strict_mean_at_8_tbest": gain}},
            controls={"strict_majority_at_8_t0.5": gain},
        )
    )[0]
    assert found.columns == [
        *("greedy", "change", "gained, lost", "at its best temperature", "change"),
        *("rubric, greedy", "kl at 1.0"),
    ]
    rows = dict(found.rows)
    assert list(rows) == ["pretrained", "sft", "dpo", "sft, majority@8 at 0.5"]
    assert {len(cells) for cells in rows.values()} == {len(found.columns)}
    assert [cell["text"] for cell in rows["sft"][:5]] == ["50.0 %", "", "", "50.0 % at 0.3", ""]
    assert [cell["text"] for cell in rows["dpo"][:5]] == ["50.0 %", "+2.0", "5, 4", "50.0 % at 0.3", "+10.0"]
    assert [cell["interval"] for cell in rows["dpo"][:5]] == [
        *("40.0 to 60.0", "-1.0 to +5.0", "p = 1.000", "40.0 to 60.0", "+5.0 to +15.0")
    ]
    assert [cell["text"] for cell in rows["sft, majority@8 at 0.5"]] == ["50.0 %", "+10.0", "30, 10", *[""] * 4]


def test_arrows_follow_the_paired_interval():
    """The policies' own intervals are equal here; only the interval of the difference decides."""
    changes = {"dpo": {"strict_greedy": Difference(SURE, None), "lenient_greedy": Difference(UNSURE, None)}}
    changes["dpo"] |= {"rubric_greedy": Difference(WORSE, None)}
    found = {table.title: table for table in tables(results(changes=changes, **LENIENT))}
    dpo = {title: dict(table.rows)["dpo"] for title, table in found.items()}
    assert dpo["At a glance"][1]["mark"] == "▲"
    assert [cell["mark"] for cell in dpo["Lenient accuracy"]] == ["", ""]
    assert [cell["mark"] for cell in dpo["Greedy answers"]] == ["▼"]
    assert dict(found["Greedy answers"].rows)["sft"][0]["mark"] == ""


def test_every_metric_stands_in_the_table_of_its_temperature():
    found = {table.title: table.columns for table in tables(results(**LENIENT))}
    assert found == {
        "At a glance": found["At a glance"],
        "Lenient accuracy": ["greedy", "mean@8 at 1.0"],
        "Strict accuracy at temperature 0.5": ["mean@8", "majority@8", "best of 8", "with steps"],
        "Strict accuracy at temperature 1.0": ["mean@8"],
        "Strict accuracy at each policy's best temperature": ["mean@8"],
        "Greedy answers": ["rubric"],
        "Answers sampled at temperature 0.5": ["steps"],
        "Answers sampled at temperature 1.0": ["kl"],
        "Answers sampled at each policy's best temperature": ["rubric"],
    }


def test_what_repeats_another_number_is_left_out():
    titles = [table.title for table in tables(results(**LENIENT))]
    assert "Lenient accuracy" in titles
    assert "Lenient accuracy" not in [table.title for table in tables(results())]
    assert ("lenient" in meaning(results(**LENIENT)), "lenient" in meaning(results())) == (True, False)
    judged = {name: {"strict_pass_at_1_t0.5": Estimate(0.5, 0.4, 0.6)} for name in ("sft", "dpo")}
    judged["dpo"]["strict_pass_at_8_t0.5"] = Estimate(0.9, 0.8, 0.95)
    columns = {table.title: table.columns for table in tables(results(**judged))}["Strict accuracy at temperature 0.5"]
    assert "pass@8" in columns
    assert "pass@1" not in columns
    greedy = replace(results(), best={"pretrained": 0.0, "sft": 0.0, "dpo": 0.0})
    assert not any("best temperature" in table.title for table in tables(greedy))
    assert tables(greedy)[0].columns == ["greedy", "change", "gained, lost", "rubric, greedy", "kl at 1.0"]


def test_why_answers_are_not_right_is_shown_where_there_are_such_answers():
    """One policy's greedy answer in ten takes too long to judge; none is unjudged."""
    judged = {
        name: {"timed_out_greedy": Estimate(0.0, 0.0, 0.1), "unjudged_greedy": Estimate(0.0, 0.0, 0.1)}
        for name in ("sft", "dpo")
    }
    never, some = results(**judged), {**judged, "dpo": {**judged["dpo"], "timed_out_greedy": Estimate(0.1, 0.0, 0.2)}}
    assert {table.title: table.columns for table in tables(never)}["Greedy answers"] == ["rubric"]
    assert not {"timed_out", "unjudged"} & {*meaning(never)}
    [found] = [table for table in tables(results(**some)) if table.title == "Greedy answers"]
    assert found.columns == ["rubric", "timed out"]
    assert dict(found.rows)["dpo"][1]["text"] == "10.0 %"
    assert "timed_out" in meaning(results(**some))


def test_what_a_change_is_owed_to_is_shown_where_there_are_strata():
    parts = {"steps": {"t0.5": {"dpo": Components(SURE, SURE, UNSURE, WORSE)}}}
    table = tables(results(components=parts))[1]
    assert table.title == "Answers with and without steps, sampled at temperature 0.5"
    (sft, base), (dpo, cells) = table.rows
    assert (sft, dpo) == ("sft", "dpo")
    assert [cell["text"] for cell in base] == ["50.0 %", "50.0 %", "", *[""] * 4], "strict_without_steps is not known"
    assert [(cell["text"], cell["mark"]) for cell in cells[3:]] == [
        *(("+10.0", "▲"), ("+10.0", "▲"), ("+2.0", ""), ("-10.0", "▼"))
    ]


@pytest.mark.parametrize(
    ("metric", "long", "brief"),
    [
        ("strict_greedy", "greedy", "greedy"),
        ("strict_mean_at_8_t0.5", "mean@8 at 0.5", "mean@8"),
        ("strict_pass_at_8_t1.0", "pass@8 at 1.0", "pass@8"),
        ("lenient_best_of_8_tbest", "best of 8 at its best temperature", "best of 8"),
        ("strict_without_steps_t1.0", "without steps at 1.0", "without steps"),
        ("strict_with_steps_greedy", "with steps, greedy", "with steps"),
        ("win_rate_sampled_t1.0", "win rate at 1.0", "win rate"),
        ("win_rate_greedy", "win rate, greedy", "win rate"),
    ],
)
def test_names_of_metrics_as_people_read_them(metric, long, brief):
    assert (label(metric), short(metric)) == (long, brief)


def test_names_of_controls():
    assert means(results(), "strict_mean_at_8_tbest") == "sampled at 0.3, its best"
    assert means(results(), "strict_best_of_8_t1.0") == "best of 8 at 1.0"


def test_a_best_temperature_of_0_is_told_as_greedy():
    found = replace(results(), best={"pretrained": 0.3, "sft": 0.0, "dpo": 0.0})
    rows = dict(tables(found)[0].rows)
    assert [rows[name][3]["text"] for name in found.best] == ["50.0 % at 0.3", "50.0 % greedily", "50.0 % greedily"]


def test_numbers():
    six = Estimate(6.0, 5.8, 6.2)
    assert (text("ended", six), interval("ended", Estimate(0.5, 0.401, 0.6))) == ("600.0 %", "40.1 to 60.0")
    assert (text("rubric", six), interval("rubric", six)) == ("6.00", "5.80 to 6.20")
    assert interval("kl", Estimate(0.0, -0.001, 0.001)) == "0.00 to 0.00"
    assert interval("ended", Estimate(0.1, -0.37, 0.59)) == "0.0 to 59.0", "Student's interval leaves it"
    assert interval("ended", Estimate(0.9, 0.8, 1.2)) == "80.0 to 100.0"
