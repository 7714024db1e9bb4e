import pandas as pd
import pytest

from tests.tasks.policies import train


@pytest.mark.parametrize("reward", ["verifiable", "rubric", "reward_model", "format"])
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
