from typing import get_args

import pandas as pd
import pytest

from tasks.language.configs.parts.python_rewards import RewardName
from tests.tasks.policies import train


@pytest.mark.parametrize("reward", [name for name in get_args(RewardName) if name not in ("outcome", "process")])
def test_any_reward_can_be_the_one_that_counts(ready, tmp_path, reward):
    train("grpo", ready, tmp_path, reward=reward)
    curve = pd.read_csv(tmp_path / "curve.csv")
    assert curve["reward"].tolist() == pytest.approx(curve[f"rewards/{reward}"].tolist())
    assert {"frac_reward_zero_std", "clip_ratio", "loss", "learning_rate"} <= set(curve.columns)
    assert ("rewards/reward_model" in curve) == (reward == "reward_model")


def test_the_pull_to_the_sft_model_is_measured_where_it_has_a_weight(ready, tmp_path):
    free, held = (train("grpo", ready, tmp_path / str(beta), beta=beta) for beta in (0.0, 0.5))
    assert "kl" not in free
    assert held["kl"] > 0


def curve(home, out, **changes):
    train("grpo", home, out, **changes)
    return pd.read_csv(out / "curve.csv")


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_the_loss_is_at_the_temperature_of_the_sampling(ready, tmp_path, temperature):
    """Then the ratio in the first update is 1, which no clip changes, however narrow."""
    found = curve(ready, tmp_path, temperature=temperature, updates=1, clip_low=1e-3, clip_high=1e-3)
    assert (found["clip_ratio"] == 0).all()


def test_each_clip_is_its_own(ready, tmp_path):
    """The second update's ratios leave 1 on both sides: a narrow clip acts above, and a wide one on both sides does not."""
    wide, above, below = (
        curve(ready, tmp_path / f"{low}-{high}", updates=2, learning_rate=0.01, clip_low=low, clip_high=high)
        for low, high in ((0.99, 50.0), (0.99, 1e-6), (1e-6, 50.0))
    )
    assert wide["clip_ratio"].max() == 0
    assert above["clip_ratio"].iloc[0] > 0
    assert below["clip_ratio"].iloc[0] > 0


def test_each_aggregation_is_the_mean_it_says(ready, tmp_path):
    """At the ratio of 1 the loss of a token is -A, and A sums to 0 within a group: by hand from the curve's own columns.

    dapo divides the sum over tokens by their number, dr_grpo by responses times the longest; a mean of means is 0.
    """
    many = {"steps": 1, "updates": 1, "prompts_per_step": 6, "samples": 8, "max_new_tokens": 32}
    kinds = ("grpo", "bnpo", "dr_grpo", "dapo")
    row = {kind: curve(ready, tmp_path / kind, aggregation=kind, **many).iloc[0] for kind in kinds}
    loss = {kind: row[kind]["loss"] for kind in kinds}
    assert loss["grpo"] == pytest.approx(0, abs=1e-6)
    assert abs(loss["dapo"]) > 1e-3, "some answers end early"
    assert loss["dr_grpo"] * 32 / row["dapo"]["completions/mean_length"] == pytest.approx(loss["dapo"], rel=1e-4)
    assert loss["bnpo"] != pytest.approx(loss["dapo"], rel=1e-3), "a mean over parts of 5 responses each"


def test_each_advantage_is_in_its_own_unit(ready, tmp_path):
    """With one group in a step both advantages differ by the group's standard deviation, and so do the losses."""
    rows = {
        kind: curve(ready, tmp_path / kind, advantage=kind, prompts_per_step=1, updates=1, aggregation="dr_grpo").iloc[
            0
        ]
        for kind in ("standardized", "centered")
    }
    spread = rows["centered"]["reward_std"] + 1e-4
    assert rows["centered"]["grad_norm"] == pytest.approx(rows["standardized"]["grad_norm"] * spread, rel=1e-3)
    assert spread != pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("mask_truncated", [True, False])
def test_an_answer_that_was_cut_off_can_be_left_out(ready, tmp_path, mask_truncated):
    found = curve(ready, tmp_path, mask_truncated=mask_truncated, max_new_tokens=2)
    all_cut = found[found["completions/clipped_ratio"] == 1]
    assert len(all_cut)
    assert ((all_cut["grad_norm"] == 0) == mask_truncated).all()


def weights(ready, out, **changes):
    train("grpo", ready, out, reward="reward_model", **changes)
    return (out / "model/model.safetensors").read_bytes()


@pytest.mark.parametrize("key", ["clip_low", "clip_high"])
def test_with_the_default_updates_the_clip_acts_and_with_one_it_cannot(ready, tmp_path, key):
    """The default makes more than one update on a batch, so ratios leave 1; with one update the clip does nothing, as documented."""
    narrow, wide = ({key: value} for value in (0.0001, 0.9))
    one, other = (weights(ready, tmp_path / name, **part) for name, part in (("narrow", narrow), ("wide", wide)))
    assert one != other
    assert pd.read_csv(tmp_path / "narrow/curve.csv")["clip_ratio"].max() > 0
    one, other = (weights(ready, tmp_path / name, updates=1, **part) for name, part in (("1", narrow), ("2", wide)))
    assert one == other
