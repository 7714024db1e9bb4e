import pandas as pd
import pytest

from tasks.language.training.environment import SamplingEnvironment
from tests.tasks.policies import train

SHORT = {"steps": 2, "evaluate_every": 0}
FIRST = {"steps": 1, "evaluate_every": 0, "max_new_tokens": 4}


@pytest.fixture(scope="module")
def brief(ready, tmp_path_factory):
    """The metrics and the curve of a training of two steps with the default updates."""
    out = tmp_path_factory.mktemp("brief")
    return train("grpo", ready, out, **SHORT), pd.read_csv(out / "curve.csv")


def check_reward(curve, reward):
    assert curve["reward"].tolist() == pytest.approx(curve[f"rewards/{reward}"].tolist())
    assert {"frac_reward_zero_std", "clip_ratio", "loss", "learning_rate"} <= set(curve.columns)
    assert ("rewards/reward_model" in curve) == (reward == "reward_model")


def test_another_reward_can_be_the_one_that_counts(ready, tmp_path):
    """Each kind's values are checked in training/test_environment.py."""
    check_reward(curve(ready, tmp_path, reward="rubric", **FIRST), "rubric")


def test_the_reward_model_can_be_the_one_that_counts(brief):
    check_reward(brief[1], "reward_model")


def test_the_pull_to_the_sft_model_is_measured_where_it_has_a_weight(ready, brief, tmp_path):
    held = train("grpo", ready, tmp_path, beta=0.5, **SHORT)
    assert "kl" not in brief[0]
    assert held["kl"] > 0


def curve(home, out, **changes):
    train("grpo", home, out, **changes)
    return pd.read_csv(out / "curve.csv")


@pytest.fixture
def sampled_once(monkeypatch):
    """Trainings with the same seed sample the same answers, so those of the first are handed to all others."""
    sample, kept = SamplingEnvironment.sample, {}

    def sample_or_repeat(self, places, samples, draw, *more):
        key = (tuple(places), samples, draw)
        if key not in kept:
            kept[key] = sample(self, places, samples, draw, *more)
        return kept[key]

    monkeypatch.setattr(SamplingEnvironment, "sample", sample_or_repeat)


def test_each_aggregation_is_the_mean_it_says(ready, sampled_once, tmp_path):
    """At the ratio of 1 the loss of a token is -A, and A sums to 0 within a group: by hand from the curve's own
    columns.

    dapo divides the sum over tokens by their number, dr_grpo by responses times the longest; a mean of means is 0.
    """
    many = {**FIRST, "updates": 1, "prompts_per_step": 4, "samples": 8, "max_new_tokens": 32}
    kinds = ("grpo", "bnpo", "dr_grpo", "dapo")
    row = {kind: curve(ready, tmp_path / kind, aggregation=kind, **many).iloc[0] for kind in kinds}
    loss = {kind: row[kind]["loss"] for kind in kinds}
    assert loss["grpo"] == pytest.approx(0, abs=1e-6)
    assert abs(loss["dapo"]) > 1e-3, "some answers end early"
    assert loss["dr_grpo"] * 32 / row["dapo"]["completions/mean_length"] == pytest.approx(loss["dapo"], rel=1e-4)
    assert loss["bnpo"] != pytest.approx(loss["dapo"], rel=1e-3), "a mean over parts of 5 responses each"


def test_each_advantage_is_in_its_own_unit(ready, tmp_path):
    """With one group in a step both advantages differ by the group's standard deviation, and so do the losses."""
    alone = {**FIRST, "prompts_per_step": 1, "updates": 1, "aggregation": "dr_grpo"}
    rows = {
        kind: curve(ready, tmp_path / kind, advantage=kind, **alone).iloc[0] for kind in ("standardized", "centered")
    }
    spread = rows["centered"]["reward_std"] + 1e-4
    assert rows["centered"]["grad_norm"] == pytest.approx(rows["standardized"]["grad_norm"] * spread, rel=1e-3)
    assert spread != pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("mask_truncated", [True, False])
def test_an_answer_that_was_cut_off_can_be_left_out(ready, tmp_path, mask_truncated):
    rows = curve(ready, tmp_path, mask_truncated=mask_truncated, max_new_tokens=2, **SHORT)
    all_cut = rows[rows["completions/clipped_ratio"] == 1]
    assert len(all_cut)
    assert ((all_cut["grad_norm"] == 0) == mask_truncated).all()


@pytest.fixture(scope="module")
def clipped(ready, tmp_path_factory):
    """By the name of its clips, the folder of a training with the default updates; where not named, a clip is wide."""
    out, clips = (
        tmp_path_factory.mktemp("clipped"),
        {"wide": {}, "low": {"clip_low": 1e-6}, "high": {"clip_high": 1e-6}},
    )
    for name, narrow in clips.items():
        train(
            "grpo", ready, out / name, **FIRST, **{"learning_rate": 0.01, "clip_low": 0.99, "clip_high": 50.0, **narrow}
        )
    return out


@pytest.mark.parametrize("side", ["low", "high"])
def test_with_the_default_updates_each_clip_acts_on_its_own(clipped, side):
    """The default makes more than one update on a batch, so ratios leave 1 on both sides: a narrow clip acts, a wide
    one does not.
    """
    wide, narrow = (pd.read_csv(clipped / name / "curve.csv")["clip_ratio"] for name in ("wide", side))
    assert wide.max() == 0
    assert narrow.iloc[0] > 0
    wide, narrow = ((clipped / name / "model/model.safetensors").read_bytes() for name in ("wide", side))
    assert wide != narrow


def test_with_one_update_no_clip_acts_at_the_temperature_of_the_sampling(ready, tmp_path):
    """Then the ratio is 1, as documented, since the loss is at that temperature."""
    cold = {"updates": 1, "temperature": 0.5, **FIRST}
    for name, clip in (("narrow", 0.0001), ("wide", 0.9)):
        train("grpo", ready, tmp_path / name, clip_low=clip, clip_high=clip, **cold)
        assert (pd.read_csv(tmp_path / name / "curve.csv")["clip_ratio"] == 0).all()
    narrow, wide = ((tmp_path / name / "model/model.safetensors").read_bytes() for name in ("narrow", "wide"))
    assert narrow == wide
