"""What all stages that train a policy by reward do alike, on tiny models."""

import pandas as pd
import pytest
import torch
from pydantic import ValidationError
from transformers import AutoModelForCausalLM

from tasks import artifacts
from tasks.environment import Judge
from tests.tasks.policies import configured, judge_that_fails_at, train

POLICIES = ("reinforce", "ppo", "grpo")
SAMPLES = {"reward", "reward_std", "entropy", "completions/mean_length", "completions/clipped_ratio"}


def weights(out):
    return artifacts.load_model(out / "model").state_dict()


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def trained(ready, tmp_path_factory):
    """Every policy, trained once: (metrics, folder) by stage."""
    outs = {stage: tmp_path_factory.mktemp(stage) for stage in POLICIES}
    return {stage: (train(stage, ready, out), out) for stage, out in outs.items()}


@pytest.mark.parametrize("stage", POLICIES)
def test_the_out_is_a_model_that_moved(ready, trained, stage):
    out = trained[stage][1] / "model"
    model, words = AutoModelForCausalLM.from_pretrained(out), artifacts.load_tokenizer(out)
    assert words.get_vocab() == artifacts.load_tokenizer(ready / "pretrained").get_vocab()
    before = AutoModelForCausalLM.from_pretrained(ready / "pretrained").state_dict()
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert not same(before, after)
    assert all(weight.isfinite().all() for weight in after.values())


@pytest.mark.parametrize("stage", POLICIES)
def test_the_curve_has_a_finite_row_a_step(trained, stage):
    metrics, out = trained[stage]
    curve = pd.read_csv(out / "curve.csv")
    assert curve["step"].tolist() == [1, 2, 3, 4]
    every_step = curve.drop(columns=[name for name in curve if name.startswith("grad_variance/")])
    assert torch.tensor(every_step.to_numpy()).isfinite().all()
    assert {*curve.columns} - {"step"} == metrics.keys()
    assert {*SAMPLES, "rewards/reward_model", "rewards/verifiable", "eval_reward", "grad_norm"} <= metrics.keys()
    for name, value in metrics.items():
        assert value == pytest.approx(curve[name].iloc[-1], rel=1e-6), "of the last tenth of the steps"


@pytest.mark.parametrize("stage", POLICIES)
def test_the_seed_decides(ready, trained, tmp_path, stage):
    for name, seed in (("same", 0), ("other", 1)):
        train(stage, ready, tmp_path / name, seed=seed)
    for file in ("model/model.safetensors", "curve.csv"):
        found = [(path / file).read_bytes() for path in (trained[stage][1], tmp_path / "same", tmp_path / "other")]
        assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("stage", POLICIES)
def test_keep_best_without_evaluations_is_refused(stage):
    with pytest.raises(ValidationError, match=r"evaluate_every\n.*expected at least 1 with keep best"):
        configured(stage, keep="best", evaluate_every=0)
    configured(stage, keep="last", evaluate_every=0)


@pytest.mark.parametrize("stage", POLICIES)
def test_a_reward_that_is_no_number_stops_the_stage(ready, tmp_path, monkeypatch, stage):
    monkeypatch.setattr(Judge, "__call__", judge_that_fails_at(3))
    with pytest.raises(SystemExit) as stopped:
        train(stage, ready, tmp_path, evaluate_every=0)
    line = f"{stage}: step 3: the reward of response 1 is nan (1 of 9 are no finite numbers)"
    assert str(stopped.value) == line
    assert not list(tmp_path.iterdir())
