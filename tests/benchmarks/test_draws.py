import json

import pytest

from benchmarks import draws
from benchmarks.draws import SEED, each_draw, kept, kinds, methods, over_draws
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
    return {"draw": number, "reward_model": {"accuracy": 0.7, "untrained": {"accuracy": 0.6}}, **policies}


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
    """GRPO is 2, 4 and 6 points above 84 %: mean 4, standard error 2 / sqrt(3), Student's quantile 4.303. DPO is 4 points below in each."""
    assert methods(RESULT) == ["dpo", "grpo"]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in over_draws(RESULT).splitlines()]
    rows = {name: rest for name, *rest in cells}
    assert rows["grpo"][:2] == ["88.0 %", "+4.0 (-1.0 to +9.0)"]
    assert rows["dpo"][:2] == ["80.0 %", "-4.0 (-4.0 to -4.0)"]
    assert float(rows["grpo"][2]) == pytest.approx(0.074, abs=0.001), "the larger of two p-values is not corrected"
    assert rows["grpo"][3:] == ["44.0 %", "+3.0 (+3.0 to +3.0)", "+1.0", "+2.0"]
    assert rows["sft"][1:3] == ["", ""]


def test_each_draw_has_a_row_and_each_policy_its_other_kinds():
    assert each_draw(RESULT).splitlines()[2] == "| 0 | 80.0 % | 84.0 % | 82.0 % | 80.0 % | 86.0 % | 70.0 % | 60.0 % |"
    assert kinds(RESULT).splitlines()[-1] == "| grpo | 10.0 % | 10.0 % | 10.0 % | 10.0 % |"


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
    assert kept(3, tmp_path) == {
        "draw": 3,
        "reward_model": {"accuracy": 0.7},
        "dpo": {"strict_greedy": 0.5, "gold_by_manner": 0.25},
    }


def test_the_report_reads_what_is_kept(tmp_path):
    params = {"report": {name: RESULT[name] for name in ("policies", "baseline", "controls")}, "sft": {"seed": 1}}
    (tmp_path / run_head.DRAWS).parent.mkdir(parents=True)
    held = {**RESULT, "params_hash": run_head.params_hash(params, ["sft"])}
    (tmp_path / run_head.DRAWS).write_text(json.dumps({"result": held}))
    assert "grpo +4.0 points on average" in run_head.draws(tmp_path, params, ["sft", "report"])
