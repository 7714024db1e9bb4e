import pandas as pd
import pytest

from tests.tasks.policies import train


@pytest.mark.parametrize("baseline", ["none", "running_mean", "critic"])
def test_each_baseline_trains_and_the_variances_are_compared(ready, tmp_path, baseline):
    train("reinforce", ready, tmp_path, baseline=baseline)
    curve = pd.read_csv(tmp_path / "curve.csv")
    names = {name.removeprefix("grad_variance/") for name in curve.columns if name.startswith("grad_variance/")}
    assert names == {"none", "running_mean"} | ({"critic"} if baseline == "critic" else set())
    assert ("val/explained_variance" in curve) == ("loss/value" in curve) == (baseline == "critic")
    for name in names:
        measured = curve[f"grad_variance/{name}"].tolist()
        assert measured[1] == measured[2] > 0, "between two measurements the last one stands"
        assert len(set(measured)) == 3, "measured at steps 1, 2 and 4"


def test_the_running_mean_is_that_of_the_steps_before(ready, tmp_path):
    train("reinforce", ready, tmp_path, baseline="running_mean", mean_rate=0.25)
    curve = pd.read_csv(tmp_path / "curve.csv")
    rewards, expected = curve["reward"], [0.0, curve["reward"][0]]
    for reward in rewards[1:3]:
        expected.append(expected[-1] + 0.25 * (reward - expected[-1]))
    assert curve["baseline"].tolist() == pytest.approx(expected, rel=1e-5)
