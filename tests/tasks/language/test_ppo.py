import pandas as pd
import pytest
from pydantic import ValidationError

from tests.tasks.policies import train

NAMES = {
    *("objective/kl", "objective/scores", "objective/kl_coef", "policy/approxkl", "policy/clipfrac"),
    *("loss/policy", "loss/value", "val/ratio", "val/explained_variance"),
}


def test_the_curve_tells_all_and_begins_at_the_reference(ready, tmp_path):
    """With as many minibatches as responses; more are refused."""
    with pytest.raises(ValidationError, match=r"minibatches\n.*expected at most prompts_per_step x samples = 9"):
        train("ppo", ready, tmp_path, minibatches=10)
    train(
        "ppo", ready, tmp_path, kl_target=None, kl_coefficient=0.05, steps=2, evaluate_every=0, minibatches=9, epochs=1
    )
    curve = pd.read_csv(tmp_path / "curve.csv")
    assert set(curve.columns) >= NAMES
    assert curve["objective/kl"].iloc[0] == pytest.approx(0, abs=1e-4)
    assert curve["objective/kl"].iloc[1:].abs().min() > 1e-3
    assert (curve["objective/kl_coef"] == 0.05).all(), "without a target it stays"


def test_a_target_moves_the_coefficient(ready, tmp_path):
    """The KL stays far below 100 nats, so each step lowers the coefficient by a fifth of the rate."""
    few = {"max_new_tokens": 4, "epochs": 1, "minibatches": 1}
    train("ppo", ready, tmp_path, kl_target=100.0, kl_coefficient=0.05, kl_rate=0.1, evaluate_every=0, steps=3, **few)
    found = pd.read_csv(tmp_path / "curve.csv")["objective/kl_coef"].tolist()
    assert found == pytest.approx([0.05 * 0.98**step for step in range(3)])


def test_an_answer_without_an_end_costs_the_penalty(ready, tmp_path):
    """In the first step the critic's values are 0, so its loss is half the mean squared return: by hand, with all
    responses cut off.
    """
    penalty, rows = 3.0, {}
    for asked in (0.0, penalty):
        changes = {"missing_end_penalty": asked, "epochs": 1, "minibatches": 1, "steps": 1, "gamma": 1.0, "lam": 1.0}
        train("ppo", ready, tmp_path / str(asked), max_new_tokens=2, clip_value=0.0, evaluate_every=0, **changes)
        rows[asked] = pd.read_csv(tmp_path / str(asked) / "curve.csv").iloc[0]
    assert rows[0.0]["completions/clipped_ratio"] == 1
    more = penalty**2 / 2 - penalty * rows[0.0]["reward"]
    assert rows[penalty]["loss/value"] - rows[0.0]["loss/value"] == pytest.approx(more, rel=1e-4)
