from dataclasses import replace

import pandas as pd
import pytest

from tasks.algorithms.language.advantages import put_scores_at_last_token
from tasks.language.training.environment import SamplingEnvironment
from tests.tasks.policies import train


@pytest.fixture(scope="module")
def curve_of(ready, tmp_path_factory):
    """The curve of a training with each baseline."""

    def curve(baseline):
        out = tmp_path_factory.mktemp(baseline)
        train(
            "reinforce",
            ready,
            out,
            baseline=baseline,
            mean_rate=0.25,
            paid="at_end",
            evaluate_every=0,
            max_new_tokens=4,
        )
        return pd.read_csv(out / "curve.csv")

    return {baseline: curve(baseline) for baseline in ("running_mean", "critic")}


def compared(curve):
    """The baselines whose variances a curve has."""
    return {name.removeprefix("grad_variance/") for name in curve.columns if name.startswith("grad_variance/")}


@pytest.mark.parametrize("baseline", ["running_mean", "critic"])
def test_each_baseline_trains_and_the_variances_are_compared(curve_of, baseline):
    curve = curve_of[baseline]
    names = compared(curve)
    assert names == {"total_return", "none", "running_mean"} | ({"critic"} if baseline == "critic" else set())
    assert ("val/explained_variance" in curve) == ("loss/value" in curve) == (baseline == "critic")
    for name in names:
        measured = curve[f"grad_variance/{name}"].tolist()
        assert measured[1] == measured[2] > 0, "between two measurements the last one stands"
        assert len(set(measured)) == 3, "measured at steps 1, 2 and 4"


def test_the_running_mean_is_that_of_the_steps_before(curve_of):
    curve = curve_of["running_mean"]
    returns, expected = curve["return_to_go"], [0.0, curve["return_to_go"][0]]
    for earned in returns[1:3]:
        expected.append(expected[-1] + 0.25 * (earned - expected[-1]))
    assert curve["baseline"].tolist() == pytest.approx(expected, rel=1e-5)


def half_at_once(_, __, found):
    """A reward of which half is paid at the first token."""
    mask = found.completions.mask
    paid = put_scores_at_last_token(found.rewards / 2, mask)
    paid[:, 0] += found.rewards / 2
    return replace(found, paid=paid)


def test_where_the_reward_is_paid_is_as_configured(ready, curve_of, tmp_path, monkeypatch):
    """If rewards are paid on the way, reward-to-go is less than the total; the reward is the same."""
    monkeypatch.setattr(SamplingEnvironment, "add_line_rewards", half_at_once)
    train("reinforce", ready, tmp_path, paid="by_line", baseline="none", steps=1, evaluate_every=0, max_new_tokens=4)
    by_line = pd.read_csv(tmp_path / "curve.csv")
    assert compared(by_line) == {"total_return", "none", "running_mean"}
    assert not {"val/explained_variance", "loss/value"} & {*by_line}
    for curve, equal in ((by_line, False), (curve_of["running_mean"], True)):
        first = curve.iloc[0]
        assert (first["grad_variance/total_return"] == first["grad_variance/none"]) == equal


def test_what_is_said_to_do_nothing_does_nothing(ready, tmp_path):
    """Without a critic, a running mean, measured variances and evaluations their settings change no weight."""
    settings = {
        "critic_learning_rate": (0.001, 0.5),
        "critic_updates": (1, 3),
        "mean_rate": (0.1, 0.9),
        "variance_parts": (2, 3),
        "evaluate_prompts": (2, 6),
    }
    weights = []
    for number in range(2):
        changes = {name: values[number] for name, values in settings.items()}
        out = tmp_path / str(number)
        train(
            "reinforce",
            ready,
            out,
            steps=2,
            baseline="none",
            variance_every=0,
            evaluate_every=0,
            max_new_tokens=3,
            **changes,
        )
        weights.append((out / "model/model.safetensors").read_bytes())
    assert weights[0] == weights[1]
