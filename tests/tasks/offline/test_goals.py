"""Stages that relabel goals: what they learn with it and without, and that a data set without goals is named."""

import pytest

from tasks.common.errors import StageError
from tasks.offline import bc, dqn
from tasks.offline.environments import simulators
from tests.conftest import PARAMS
from tests.tasks.offline.worlds import record

SHORT = {
    "seeds": [0],
    "steps": 1500,
    "batch_size": 128,
    "log_every": 100,
    "evaluate_every": 15,
    "evaluate_episodes": 100,
    "bfloat16": False,
}
LEARNER = {"hidden": [64], "learning_rate": 0.003}


def section(config, stage, **changes):
    return config.model_validate({**PARAMS[stage], **SHORT, **LEARNER, **changes})


def q_learning(*variants, **changes):
    """The variants' names say what they are."""
    made = {
        name: {
            "double": True,
            "target": True,
            "replay": True,
            "online": "online" in name,
            "relabel": "future" if "hindsight" in name else "none",
        }
        for name in variants
    }
    exploration = {
        "replay": 50000,
        "warmup": 300,
        "steps": 2,
        "first_epsilon": 1.0,
        "last_epsilon": 0.1,
        "last_from": 1500,
    }
    return section(dqn.DqnConfig, "dqn", variants=made, exploration=exploration, target_every=50, gamma=0.95, **changes)


@pytest.fixture(autouse=True)
def somewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_hindsight_learns_where_no_reward_is_ever_seen(tmp_path):
    """Chance meets a goal of bit-flip once in 32,768 states; from the same random walks DQN learns nothing."""
    data, optimum = record(tmp_path / "bit-flip-random", "bit-flip", 1000), simulators.OPTIMA["bit-flip"]
    metrics = dqn.run(q_learning("DQN", "hindsight", steps=3000), data, tmp_path / "out")
    assert metrics["DQN"]["return"] < -14
    assert metrics["hindsight"]["return"] > optimum - 2


@pytest.mark.slow
def test_hindsight_learns_online(tmp_path):
    data, optimum = record(tmp_path / "bit-flip-random", "bit-flip", 100), simulators.OPTIMA["bit-flip"]
    metrics = dqn.run(q_learning("online", "online hindsight", steps=4000), data, tmp_path / "out")
    assert metrics["online"]["return"] < -14
    assert metrics["online hindsight"]["return"] > optimum - 2


def test_cloning_towards_what_was_reached(tmp_path):
    data, returns = record(tmp_path / "goal-graph-random", "goal-graph", 150), {}
    short = {"steps": 110, "batch_size": 64, "log_every": 110, "learning_rate": 0.015, "evaluate_episodes": 60}
    for relabel in ("none", "future", "final"):
        config = section(bc.BcConfig, "bc", shares={"BC": 1.0}, relabel=relabel, **short)
        returns[relabel] = bc.run(config, data, tmp_path / relabel)["BC"]["return"]
    assert returns["future"] > returns["none"] + 1
    assert returns["final"] > returns["none"] + 0.5


def test_how_many_copies_are_kept_counts(tmp_path):
    data = record(tmp_path / "bit-flip-random", "bit-flip", 20)
    short = {"steps": 20, "log_every": 10, "evaluate_every": 99, "evaluate_episodes": 1}
    outs = [
        dqn.run(q_learning("hindsight", relabelled=copies, **short), data, tmp_path / str(copies))
        for copies in (1, 4, 4)
    ]
    assert outs[0] != outs[1] == outs[2]


@pytest.mark.parametrize("stage", ["bc", "dqn"])
def test_a_data_set_without_goals_is_named(tmp_path, stage):
    data = record(tmp_path / "CartPole-v1-random", "CartPole-v1", 2)
    config = section(bc.BcConfig, "bc", relabel="future") if stage == "bc" else q_learning("hindsight")
    with pytest.raises(StageError, match=r"^environment CartPole-v1: relabelling goals needs [^\n]*$"):
        {"bc": bc, "dqn": dqn}[stage].run(config, data, tmp_path / "out")
