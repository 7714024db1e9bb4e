"""Results of several seeds as one, by cases worked out by hand, and the page that is made of them."""

import pandas as pd
import pytest

from tasks.common.estimates import Estimate
from tasks.language.reporting.differences import Difference, compute_differences
from tasks.language.reporting.over_seeds import (
    average_results_over_seeds,
    average_seeds_with_problem_intervals,
    join_score_tables,
)
from tasks.language.reporting.scoreboard import Results
from tasks.seeds.sentences import format_seed_conclusions

PROBLEMS = [f"p{number}" for number in range(8)]


def measured(*right: int) -> pd.DataFrame:
    """Greedy answers, of which those to the problems of these numbers are right."""
    values = [float(number in right) for number in range(8)]
    return pd.DataFrame({"strict_greedy": values}, index=PROBLEMS)


def results(sft: pd.DataFrame, dpo: pd.DataFrame) -> Results:
    def judged(table: pd.DataFrame) -> dict[str, Estimate]:
        mean = float(table["strict_greedy"].mean())
        return {"strict_greedy": Estimate(mean, mean - 0.2, mean + 0.2)}

    return Results(
        {"sft": judged(sft), "dpo": judged(dpo)},
        "sft",
        {"sft": 0.0, "dpo": 0.0},
        {"dpo": compute_differences({"dpo": dpo}, sft, 2)["dpo"]},
    )


SFT = measured(0, 1)
# dpo of three seeds: 4, 5 and 6 of 8 right
DPO = [measured(0, 1, 2, 3), measured(0, 1, 2, 3, 4), measured(0, 1, 2, 3, 4, 5)]
SEEDS = [results(SFT, dpo) for dpo in DPO]
BESIDE = average_seeds_with_problem_intervals(SEEDS, [{"sft": SFT, "dpo": dpo} for dpo in DPO], 2)


def test_means_and_changes_are_over_seeds() -> None:
    merged = average_results_over_seeds(SEEDS)
    # 0.5, 0.625, 0.75: mean 0.625, deviation 0.125: half 0.310518
    assert vars(merged.judged["dpo"]["strict_greedy"]) == pytest.approx(
        {"mean": 0.625, "low": 0.314482, "high": 0.935518}, abs=1e-5
    )
    change = merged.changes["dpo"]["strict_greedy"]
    assert change.estimate.mean == 0.375
    assert change.interval_sign == 1
    assert change.changes is None, "gained and lost are of one seed's answers"


def test_beside_them_a_problems_mean_over_seeds_counts() -> None:
    change = BESIDE.changes["dpo"]["strict_greedy"]
    # of the 8 problems the difference is 0, 0, 1, 1, 2/3, 1/3, 0, 0
    averaged = pd.DataFrame({"strict_greedy": [1, 1, 1, 1, 2 / 3, 1 / 3, 0, 0]}, index=PROBLEMS)
    assert change == compute_differences({"dpo": averaged}, SFT, 2)["dpo"]["strict_greedy"]
    assert change.estimate.mean == pytest.approx(0.375)
    assert BESIDE.judged["dpo"]["strict_greedy"].low == pytest.approx(0.625 - 0.2)


def test_an_arrow_tells_what_a_change_rests_on() -> None:
    def with_side(low: float, high: float) -> Results:
        change = {"dpo": {"reference_loss": Difference(Estimate((low + high) / 2, low, high), None)}}
        numbers = {"reference_loss": Estimate(1.0, 0.9, 1.1), "length_sampled_t1.0": Estimate(9.0, 8.0, 10.0)}
        judged = dict.fromkeys(("sft", "dpo"), numbers)
        return Results(judged, "sft", {}, change)

    def mark(seeds: Results, problems: Results) -> str:
        [table] = [one for one in join_score_tables(seeds, problems) if one.title == "At a glance"]
        return dict(table.rows)["dpo"][0]["mark"]

    up, around, down = with_side(0.1, 0.3), with_side(-0.1, 0.3), with_side(-0.3, -0.1)
    assert [mark(up, up), mark(around, up), mark(around, down), mark(down, down), mark(up, around)] == [
        *("▲", "△", "▽", "▼", "")
    ]
    table = join_score_tables(up, down)[0]
    assert dict(table.rows)["dpo"][0]["interval"] == "seeds 0.90 to 1.10; problems 0.90 to 1.10"


def test_a_number_that_one_seed_lacks_is_left_out() -> None:
    lacking = Results({"sft": {}, "dpo": {}}, "sft", {}, {"dpo": {}})
    assert average_results_over_seeds([SEEDS[0], lacking]).judged == {"sft": {}, "dpo": {}}


@pytest.mark.parametrize(
    ("right", "rest"),
    [
        (
            [(0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4, 5, 6)],
            "neither the seed nor the choice of problems explains it",
        ),
        ([(0, 1, 2, 3, 4, 5, 6, 7), (0, 1, 2, 3, 4, 5, 6), (0, 1)], "another seed may not"),
        ([(0, 1, 2), (0, 1, 2), (0, 1, 2)], "but on these problems it may be chance"),
        ([(0, 2), (1, 2), (0,)], "it may be chance"),
        ([(0, 1), (0, 1), (0, 1)], "there is none"),
    ],
)
def test_the_sentence_says_what_a_difference_rests_on(right: list[tuple[int, ...]], rest: str) -> None:
    tables = [measured(*one) for one in right]
    each = [results(SFT, table) for table in tables]
    beside = average_seeds_with_problem_intervals(each, [{"sft": SFT, "dpo": table} for table in tables], 2)
    merged = average_results_over_seeds(each)
    said = format_seed_conclusions(merged, beside, "none", ["0", "1", "2"])
    assert rest in " ".join(said), said


def test_columns_of_which_nothing_is_known_over_seeds_are_left_out() -> None:
    half = Estimate(0.5, 0.4, 0.6)
    names = ("strict_greedy", "strict_mean_at_8_t1.0", "strict_mean_at_8_tbest")
    change = {"dpo": dict.fromkeys(names, Difference(half, None))}
    seeds = Results(
        {name: dict.fromkeys(names, half) for name in ("sft", "dpo")}, "sft", {"sft": 1.0, "dpo": 1.0}, change
    )
    [table] = [one for one in join_score_tables(seeds, seeds) if one.title == "At a glance"]
    assert "change" in table.columns
    assert "gained, lost" not in table.columns, "which is of one seed's answers"
    assert {len(cells) for _, cells in table.rows} == {len(table.columns)}
