import json

import pytest

from benchmarks import draws
from benchmarks.draws import (
    SEED,
    collect_draw_results,
    list_methods,
    over_draws,
    render_accuracy_by_draw,
    render_problem_kinds_table,
)
from flows.web import run_head


def draw(number, **right):
    policies = {
        name: {
            "strict_greedy": share,
            "gold_greedy": share / 2,
            "gold_by_manner": 0.01,
            "gold_by_correctness": 0.02,
            **{f"strict_greedy_{kind}": 0.1 for kind in draws.KINDS},
        }
        for name, share in right.items()
    }
    variance = {"total_return": 20.0, "none": 10.0, "running_mean": 10.0 + number, "critic": 5.0}
    return {
        "draw": number,
        "reward_model": {"accuracy": 0.7 + number / 100, "likelihood": 0.6},
        "variance": variance,
        **policies,
    }


RESULT = {
    "policies": ["sft", "sft_matched", "sft_flat", "dpo", "grpo"],
    "baseline": "sft",
    "controls": ["sft_matched", "sft_flat"],
    "draws": [
        draw(0, sft=0.80, sft_matched=0.84, sft_flat=0.82, dpo=0.80, grpo=0.86),
        draw(1, sft=0.82, sft_matched=0.80, sft_flat=0.84, dpo=0.80, grpo=0.88),
        draw(2, sft=0.84, sft_matched=0.80, sft_flat=0.80, dpo=0.80, grpo=0.90),
    ],
}


def test_a_method_counts_against_the_better_control_of_each_draw_or_a_better_baseline():
    """GRPO is 2, 4 and 6 points above 84 %: mean 4, standard error 2 / sqrt(3), Student's quantile 4.303.

    DPO is 4 points below in each.
    """
    assert list_methods(RESULT) == ["dpo", "grpo"]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in over_draws(RESULT).splitlines()]
    rows = {name: rest for name, *rest in cells}
    assert rows["grpo"][:2] == ["88.0 %", "+4.0 (-1.0 to +9.0)"]
    assert rows["dpo"][:2] == ["80.0 %", "-4.0 (-4.0 to -4.0)"]
    assert float(rows["grpo"][2]) == pytest.approx(0.074, abs=0.001), "the larger of two p-values is not corrected"
    assert rows["grpo"][3:] == ["44.0 %", "+3.0 (+3.0 to +3.0)", "+1.0", "+2.0"]
    assert rows["sft"][1:3] == ["", ""]


def test_each_draw_has_a_row_and_each_policy_its_other_kinds():
    assert render_accuracy_by_draw(RESULT).splitlines()[2] == "| 0 | 80.0 % | 84.0 % | 82.0 % | 80.0 % | 86.0 % |"
    assert render_problem_kinds_table(RESULT).splitlines()[-1] == "| grpo | 10.0 % | 10.0 % | 10.0 % | 10.0 % |"


@pytest.mark.parametrize(
    ("grpo", "said"),
    [
        (
            (0.90, 0.90, 0.90),
            "grpo has the most right answers of the methods and beats SFT continued on worked problems of the same "
            "pool (of two such controls, each draw counts the one with more right answers): +6.0 (+6.0 to +6.0)",
        ),
        ((0.86, 0.88, 0.90), "grpo has the most right answers of the methods and cannot be told from SFT continued"),
        ((0.82, 0.82, 0.82), "grpo has the most right answers of the methods and is below SFT continued"),
    ],
)
def test_the_headline_counts_against_the_better_control(grpo, said):
    """Of which each draw has one with 84 %. Gold answers are half of the right ones."""
    drawn = [
        {**one, "grpo": {**one["grpo"], "strict_greedy": share}}
        for one, share in zip(RESULT["draws"], grpo, strict=True)
    ]
    headline = draws.headline({**RESULT, "draws": drawn})
    assert said in headline
    assert (
        "grpo has the most gold answers, which are right, show the reference's steps, name each result and say nothing "
        "else: 44 %, where SFT has 41 %."
    ) in headline
    paid = " Beyond chance it has fewer right answers than that control.\n"
    assert headline.endswith(paid) == ("is below" in said)


def test_one_policy_can_be_shown_alone():
    assert [line.split("|")[1].strip() for line in over_draws(RESULT, "grpo").splitlines()[2:]] == ["grpo"]


def test_what_the_reward_model_adds_is_a_difference_draw_by_draw():
    """10, 11 and 12 points: mean 11, standard error 1 / sqrt(3)."""
    *_, third, mean = draws.reward_model(RESULT).splitlines()
    assert third == "| 2 | 72.0 % | 60.0 % | +12.0 |"
    assert mean == "| mean | | | +11.0 (+8.5 to +13.5) |"


def test_variances_are_told_draw_by_draw_and_over_that_of_reward_to_go():
    *_, third, ratio = draws.gradient_variance(RESULT).splitlines()
    assert third == "| 2 | 20.0 | 10.0 | 12.0 | 5.0 |"
    assert ratio == "| of reward-to-go's, mean | 2.00 | 1.00 | 1.10 | 0.50 |"


@pytest.mark.parametrize(
    ("unaided", "said"),
    [
        ((0.80, 0.79, 0.78), "+5.0 (+2.5 to +7.5) points of right answers more than without one (p = 0.013).\n"),
        ((0.84, 0.79, 0.74), "more than without one (p = 0.23), which cannot be told from nothing.\n"),
    ],
)
def test_what_reinforce_has_of_its_baseline(unaided, said):
    """4, 5 and 6 points in the first case: 4.303 standard errors of 0.577 points."""
    drawn = [draw(number, reinforce=0.84, **{draws.UNAIDED: share}) for number, share in enumerate(unaided)]
    assert draws.with_baseline({"draws": drawn}).endswith(said)


def test_the_methods_that_the_default_leaves_out_stand_behind_it():
    drawn = [{**one, "reinforce": one["grpo"], draws.UNAIDED: one["dpo"]} for one in RESULT["draws"]]
    names = [*RESULT["policies"], "reinforce", draws.UNAIDED]
    assert draws.list_policies({**RESULT, "draws": drawn}) == names
    assert draws.list_policies({**RESULT, "draws": [*drawn, RESULT["draws"][0]]}) == RESULT["policies"], (
        "one lacks them"
    )
    assert (
        draws.render({**RESULT, "draws": drawn}).count("| reinforce without baseline |") == 3
    )  # two rows and a column


def test_every_seed_of_the_params_is_the_draw():
    text = "seed: &seed 0     # of all\n\nproblems:\n  seed: 0\nsft:\n  seed: *seed\n  seeds: [0, 1]\n"
    assert SEED.sub(r"\g<1>seed: \g<2>7", text) == text.replace("&seed 0", "&seed 7").replace("  seed: 0", "  seed: 7")


def test_what_is_kept_of_a_draw(tmp_path):
    (tmp_path / "data/metrics").mkdir(parents=True)
    change = {"gold_by_manner": {"mean": 0.25}, "strict_greedy": {"mean": 0.1}}
    for name, metrics in {
        "reward_model": {"accuracy": 0.7},
        "evaluate@dpo": {"strict_greedy": {"mean": 0.5}, "strict_sampled_t0.7": {"mean": 0.4}, "best_temperature": 0.0},
        "report": {"dpo": {"change": change}},
        "sft": {"eval_loss": 1.0},
    }.items():
        (tmp_path / f"data/metrics/{name}.json").write_text(json.dumps(metrics))
    assert collect_draw_results(3, tmp_path) == {
        "draw": 3,
        "reward_model": {"accuracy": 0.7},
        "dpo": {"strict_greedy": 0.5, "gold_by_manner": 0.25},
    }


def test_the_report_reads_what_is_kept(tmp_path):
    params = {"report": {name: RESULT[name] for name in ("policies", "baseline", "controls")}, "sft": {"seed": 1}}
    (tmp_path / run_head.DRAWS).parent.mkdir(parents=True)
    held = {**RESULT, "params_hash": run_head.hash_params_without_seeds(params, ["sft"])}
    (tmp_path / run_head.DRAWS).write_text(json.dumps({"result": held}))
    assert "grpo +4.0 points on average" in run_head.format_gain_spread(tmp_path, params, ["sft", "report"])
