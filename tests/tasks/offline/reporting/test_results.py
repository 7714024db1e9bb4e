from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tasks.common.errors import StageError
from tasks.common.estimates import Estimate
from tasks.offline.reporting import results
from tasks.offline.reporting.measurements import ReturnScores
from tasks.offline.reporting.results import (
    VariantResult,
    build_results_table,
    build_value_comparisons,
    format_half_width,
    format_rounded_number,
    format_stitching_sentences,
)
from tasks.offline.reporting.tables import CLAIMED, FITTED

NAN = float("nan")
MINUS = "\N{MINUS SIGN}"
DATA = {
    "pole": {
        "dataset": "pole",
        "environment": "Pole",
        "reference": {"minimum": 0.0, "maximum": 200.0},
        "d4rl": None,
        "data": {"mean": 50.0, "best": 120.0},
        "behaviour": {"policy": "medium", "return": 80.0},
    },
    "hop": {
        "dataset": "hop",
        "environment": "Hop",
        "reference": {"minimum": -10.0, "maximum": 10.0},
        "d4rl": {"minimum": 0.0, "maximum": 10.0},
        "data": {"mean": 0.0, "best": 10.0},
        "behaviour": None,
    },
}


def result(variant, returns, dataset="pole", target=NAN, first=True):
    return VariantResult(f"{variant}-{dataset}", dataset, "", variant, target, first, tuple(returns))


def measured(dataset, episodes, values=(), starts=()):
    frames = [pd.DataFrame(list(rows)) for rows in (episodes, values, starts)]
    return ReturnScores(f"it-{dataset}", *frames, *(pd.DataFrame() for _ in range(3)), DATA[dataset], b"")


def episodes(variant, target, totals):
    """`totals` by seed."""
    return [
        {"variant": variant, "seed": seed, "target": target, "episode": number, "total": total, "length": 1}
        for seed, of in totals.items()
        for number, total in enumerate(of)
    ]


def test_a_seed_counts_once_whatever_its_episodes():
    found = results.build_variant_results(
        [measured("pole", episodes("BC", NAN, {0: [1.0, 3.0], 1: [10.0, 20.0, 30.0]}))]
    )
    assert [one.returns for one in found] == [(2.0, 20.0)]
    assert found[0].estimate.mean == 11.0  # of all five episodes it would be 12.8


def test_the_first_target_stands_for_the_policy():
    rows = episodes("DT", 90.0, {0: [5.0]}) + episodes("DT", 30.0, {0: [9.0]}) + episodes("DT wide", 90.0, {0: [1.0]})
    found = results.build_variant_results([measured("pole", rows)])
    assert [(one.label, one.first) for one in found] == [
        ("DT asked for 90", True),
        ("DT asked for 30", False),
        ("DT wide asked for 90", True),
    ]


def test_two_methods_must_not_share_a_name():
    one = measured("pole", episodes("BC", NAN, {0: [1.0]}))
    with pytest.raises(StageError, match="pole: two methods have a variant named BC"):
        results.build_variant_results([one, one])


def test_scores_by_hand_and_the_datas_own_beside_them():
    made = build_results_table(
        "Score", "", [result("BC", [100.0, 140.0]), result("DT", [3.0], "hop")], DATA, "reference"
    )
    assert made.columns == ["data mean", "data best", "greedy behaviour", "BC", "DT"]
    assert [(name, [cell.text for cell in cells]) for name, cells in made.rows] == [
        ("pole", ["25.0", "60.0", "40.0", "60.0", ""]),
        ("hop", ["50.0", "100", "", "", "65.0"]),
    ]
    assert made.rows[0][1][3].interval == "± 127"  # of 50 and 70: 12.706 * 14.14 / sqrt 2
    assert made.rows[1][1][4].interval == "one seed"


def test_d4rls_scores_are_apart_and_only_where_it_has_references():
    found = [result("BC", [100.0, 140.0]), result("DT", [3.0], "hop")]
    made = build_results_table("D4RL score", "", found, DATA, "d4rl")
    assert made.columns == ["data mean", "data best", "DT"]
    assert [(name, [cell.text for cell in cells]) for name, cells in made.rows] == [("hop", ["0.0", "100", "30.0"])]


@pytest.mark.parametrize(
    ("others", "best"),
    [
        ([("B", [1.0, 2.0, 3.0])], True),
        ([("B", [1.0, 2.0, 30.0])], False),  # its interval reaches A's
        ([("B", [1.0, 2.0, 3.0]), ("C", [19.0, 20.0, 21.0])], False),
        ([], False),  # nothing to be better than
        ([("B", [1.0])], False),  # one seed bounds nothing
    ],
)
def test_bold_is_above_all_others(others, best):
    found = [result("A", [19.0, 20.0, 21.0]), *(result(*other) for other in others)]
    made = build_results_table("Return", "", found, DATA, None)
    assert made.rows[0][1][3].best is best
    assert not any(cell.best for cell in made.rows[0][1][4:])


def walks(variant, totals):
    """`totals` by start and seed; start 0 is done best in 2 steps, the data knows 2, 4 and no walk from start 2."""
    return [
        {
            "variant": variant,
            "seed": seed,
            "target": NAN,
            "start": start,
            "optimum": -2.0,
            "recorded": [-2.0, -4.0, np.nan][start],
            "total": total,
        }
        for start, of in enumerate(totals)
        for seed, total in enumerate(of)
    ]


def test_starts_by_hand():
    q = measured("pole", [], (), walks("Q", [(-2.0,), (-2.0,), (-2.0,)]))
    bc = measured(
        "pole", [], (), walks("BC", [(-2.0, -4.0), (-4.0, -4.0), (-9.0, -9.0)])
    )  # from start 0 one seed of two
    assert format_stitching_sentences([q, bc, measured("pole", [])]) == [
        "pole: the best recorded walk is a shortest path from 1 of 3 starts.",
        "pole: Q takes a shortest path from every start; it is better than the best recorded walk "
        "from 2, most of them, "
        "as good from 1, worse from 0.",
        "pole: BC takes a shortest path from 0 of 3 starts; it is better than the best recorded walk "
        "from 1, not most of "
        "them, as good from 1, worse from 1.",
    ]


def test_a_policy_with_targets_is_told_with_its_first():
    rows = [{**row, "target": target} for target in (-1.0, -3.0) for row in walks("DT", [(-2.0,), (-2.0,), (-2.0,)])]
    told = format_stitching_sentences([measured("pole", [], (), rows)])
    assert len(told) == 2
    assert told[1].startswith(f"pole: DT asked for {MINUS}1 takes")


def test_beliefs_by_hand():
    def row(seed, source, value, truth):
        settled = source == CLAIMED or seed > 0
        key = {"variant": "DQN", "seed": seed, "source": source, "gamma": 0.9, "converged": settled, "cut": 0.25}
        return {**key, "value": value, "truth": truth}

    rows = [row(seed, CLAIMED, 50.0 + seed, 10.0 + seed) for seed in range(3)]
    (one,) = build_value_comparisons(
        measured("pole", [], rows + [row(seed, FITTED, 11.0, 10.0 + seed) for seed in range(3)])
    )
    assert one.truth.mean == 11.0
    assert one.claimed.mean == 51.0
    assert one.fitted == Estimate(11.0, 11.0, 11.0)
    assert one.verdict == "over-estimated"
    assert (one.cut_told, one.moving_told) == ("25 % of the episodes cut off", "not settled in 1 of 3 seeds")
    (under,) = build_value_comparisons(measured("pole", [], [{**row, "value": -row["value"]} for row in rows]))
    assert (under.verdict, under.fitted) == ("under-estimated", None)
    (alone,) = build_value_comparisons(measured("pole", [], rows[:1]))
    assert alone.verdict == ""


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0.0, "0.0"),
        (-0.04, "0.0"),
        (-3.25, MINUS + "3.2"),
        (99.94, "99.9"),
        (99.96, "100"),
        (-1234.5, MINUS + "1,234"),
        (7.0, "7.0"),
    ],
)
def test_numbers_as_people_read_them(value, told):
    assert format_rounded_number(value) == told


def test_chosen_numbers_as_they_were_written():
    assert [results.format_exact_number(value) for value in (3600.0, -1.0, 0.5)] == ["3,600", MINUS + "1", "0.5"]


def test_an_interval_without_bounds_is_no_interval():
    assert format_half_width(Estimate(1.0, 0.5, 1.5)) == "± 0.5"
    assert format_half_width(Estimate(1.0, -float("inf"), float("inf"))) == "one seed"


def test_what_was_evaluated_once_is_said_to_have_no_curve():
    def progress(variant, steps):
        return [{"variant": variant, "seed": seed, "step": step, "return": 1.0} for seed in (0, 1) for step in steps]

    def of(*rows):
        return replace(measured("pole", []), progress=pd.DataFrame([row for part in rows for row in part]))

    assert results.format_variants_without_curve([of(progress("BC", [5, 10]))]) == []
    told = results.format_variants_without_curve(
        [of(progress("Q", [9])), of(progress("BC", [5, 10]), progress("DT", [10]))]
    )
    assert told == ["Evaluated only once, at the end, and so without a curve: Q on pole, DT on pole."]
