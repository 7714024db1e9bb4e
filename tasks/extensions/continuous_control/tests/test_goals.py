"""Goals and continuous actions: what TD3 learns with relabelled goals and without."""

import pytest

from tasks.extensions.continuous_control import td3
from tasks.offline.environments import simulators
from tests.tasks.offline.test_goals import section
from tests.tasks.offline.worlds import record


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def actor_critic(*variants, **changes):
    made = {name: {"relabel": "future" if "hindsight" in name else "none"} for name in variants}
    return section(td3.Td3Config, "td3", variants=made, **changes)


@pytest.mark.slow
def test_hindsight_learns_continuous_actions_online(tmp_path):
    data, optimum = record(tmp_path / "reach-random", "reach", 100), simulators.OPTIMA["reach"]
    metrics = td3.run(actor_critic("TD3", "hindsight", steps=6000), data, tmp_path / "out")
    assert metrics["hindsight"]["return"] > optimum - 3
    assert metrics["hindsight"]["return"] > metrics["TD3"]["return"] + 5


def test_what_is_played_and_what_is_kept_of_continuous_actions(tmp_path):
    data = record(tmp_path / "reach-random", "reach", 5)
    exploration = {"replay": 500, "warmup": 60, "steps": 2, "first_epsilon": 0.2, "last_epsilon": 0.2, "last_from": 1}
    short = {"steps": 20, "batch_size": 16, "log_every": 10, "evaluate_every": 99, "evaluate_episodes": 1}
    short["exploration"] = exploration
    outs = [
        td3.run(actor_critic("hindsight", **{**short, **changes}), data, tmp_path / str(number))
        for number, changes in enumerate([{}, {}, {"relabelled": 1}, {"exploration_noise": 0.0}])
    ]
    assert outs[0] == outs[1]
    assert outs[0] != outs[2]
    assert outs[0] != outs[3]
