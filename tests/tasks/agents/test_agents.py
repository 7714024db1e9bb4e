"""Agents: every kind of credit and update trains, goes on after a kill with the same bits, and learns where it can."""

import pandas as pd
import pytest
import torch
from pydantic import ValidationError

from tasks.agents import agents
from tasks.algorithms.agents import actor_critic
from tasks.common import checkpoints, models
from tests.conftest import PARAMS
from tests.tasks.agents import small


def weights(folder):
    return torch.cat([part.flatten() for part in models.load_model(folder).parameters()])


@pytest.mark.parametrize("kind", small.KINDS)
def test_a_kind_trains_and_says_how(kind, cloned, trained_kind):
    out, metrics = trained_kind(kind)
    curve = pd.read_csv(out / "curves.csv")
    assert curve["step"].tolist() == [1, 2] * len(small.SEEDS.get(kind, [0]))
    assert not curve.isna().any().any()
    known = {*actor_critic.METRICS, "learning_rate"}
    assert {name for name in metrics if not name.startswith("counted/")} <= known
    entry = {**small.ENTRY, **small.KINDS[kind]}
    assert ("loss/value" in metrics) == (entry["credit"] in ("q", "advantage"))
    assert ("clip_ratio" in metrics) == (entry["update"] == "clip")
    assert ("step_share" in metrics) == (entry["update"] == "trust_region")
    assert kind != "trpo" or 0 < metrics["kl"] <= PARAMS["agents"]["radius"]
    assert (weights(out / "seed-0") != weights(cloned)).any()


@pytest.mark.parametrize("kind", small.KILLED)
def test_a_killed_training_goes_on_with_the_same_bits(kind, cloned, recorded, trained_kind, tmp_path, monkeypatch):
    """The last seed is cut after its first step; one before it is not trained again."""
    whole, _ = trained_kind(kind)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checkpoints, "EVERY_SECONDS", 0.0)
    monkeypatch.setattr(checkpoints, "SHARE", float("inf"))
    played, collected, steps = actor_critic.check_experience, list[int](), 2 * len(small.SEEDS.get(kind, [0]))

    def cut(experience):
        collected.append(1)
        if len(collected) == steps:
            raise KeyboardInterrupt
        played(experience)

    monkeypatch.setattr(actor_critic, "check_experience", cut)
    with pytest.raises(KeyboardInterrupt):
        small.train_kind(tmp_path, cloned, recorded, kind)
    small.train_kind(tmp_path, cloned, recorded, kind)
    assert len(collected) == steps + 1, "one of the steps was played twice"
    for file in ("curves.csv", *(f"seed-{seed}/model.safetensors" for seed in range(steps // 2))):
        assert (tmp_path / "agents/one" / file).read_bytes() == (whole / file).read_bytes()


@pytest.mark.parametrize(
    ("entry", "games", "line"),
    [
        (
            {"baseline": "group"},
            3,
            "expected a whole number of at least 2, since branches.agents.one has the baseline group",
        ),
        (
            {"baseline": "group", "credit": "total"},
            1,
            "expected a whole number of at least 2, since branches.agents.one has",
        ),
        ({"credit": "total"}, 1, "expected at least 2 with games: 1, since branches.agents.one has the baseline mean"),
        ({"credit": "total"}, 2, ""),
        ({"baseline": "mean"}, 1, ""),
        ({"credit": "total", "baseline": "none"}, 1, ""),
    ],
)
def test_an_episode_is_compared_with_others(entry, games, line):
    """Less its own return, an episode's return is 0, and nothing would be learned."""
    policies = {"one": {**small.ENTRY, **entry}}
    section = {**PARAMS["agents"], "policies": policies, "games": games, "episodes": 1, "minibatches": 1}
    if not line:
        agents.AgentsConfig.model_validate(section)
        return
    with pytest.raises(ValidationError) as error:
        agents.AgentsConfig.model_validate(section)
    assert line in str(error.value)
    assert error.value.errors()[0]["loc"] == ("episodes",)


def test_an_event_that_is_seldom_counted_is_0_where_it_is_not(cloned, recorded, tmp_path, monkeypatch):
    """A fault of an environment, or a call of a tool: in the last step of the second of two seeds only."""
    monkeypatch.chdir(tmp_path)
    said, steps = agents.playing.compute_logged_means, list[int]()

    def logged(episodes):
        steps.append(1)
        return {**said(episodes), **({"counted/faults": 0.5} if len(steps) == 2 * small.SHORT["steps"] else {})}

    monkeypatch.setattr(agents.playing, "compute_logged_means", logged)
    out, metrics = small.train(tmp_path, cloned, recorded, seeds=[0, 1], games=1, max_action_tokens=2)
    assert pd.read_csv(out / "curves.csv")["counted/faults"].tolist() == [0.0, 0.0, 0.0, 0.5]
    assert metrics["counted/faults"] == 0.25


def test_a_kl_bound_is_kept(cloned, recorded, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    narrow = {"radius": 0.0005, "steps": 1, "games": 2, "max_action_tokens": 5}
    _, metrics = small.train(tmp_path, cloned, recorded, small.KINDS["trpo"], **narrow)
    assert 0 < metrics["kl"] <= narrow["radius"]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"over": "tokens"}, "expected 'turns' with another credit than advantage"),
        ({"credit": "advantage", "baseline": "group"}, "expected 'none' with credit advantage"),
    ],
)
def test_settings_that_contradict_each_other_are_one_line(change, line, tmp_path):
    with pytest.raises(ValidationError) as error:
        small.train(tmp_path, tmp_path, tmp_path, change)
    assert line in str(error.value)


@pytest.mark.slow
def test_it_learns_to_find_the_treasure(one_thread, tmp_path, monkeypatch):
    """A clone of little play walks about; PPO teaches it to take what it sees."""
    monkeypatch.chdir(tmp_path)
    easy = {**small.ROOMS, "settings": {"rooms": 2, "doors": 0, "turns": 5}, "episodes": 40}
    recorded = small.record(tmp_path, easy)
    policy = small.clone(tmp_path, recorded, epochs=6)
    out, _ = small.train(tmp_path, policy, recorded, small.PPO, seeds=[0, 1, 2], steps=50, games=8, episodes=2)
    curves = pd.read_csv(out / "curves.csv").groupby("step")["return"].mean()
    assert curves.iloc[-6:].mean() > curves.iloc[:6].mean() + 0.2
