"""Environments that a folder holds."""

import json
from pathlib import Path

import pytest
import torch

from tasks.agents.environments import user_environments
from tasks.agents.environments.as_gymnasium import Described
from tasks.common.errors import DataError
from tasks.offline.datasets import dataset_files
from tasks.offline.environments import saved_environments, simulators
from tasks.offline.environments.rollouts import play_seeded_episodes, wrap_as_player
from tests.tasks.offline.worlds import record

MODULE = "tasks.agents.environments.as_gymnasium"
GAME = Described("rooms", {"rooms": 2, "doors": 0, "turns": 3}, 10.0, 4, 0.9, ["go east", "take lamp"], 0.75, "")

ENDLESS = """
class Game:
    def __init__(self, settings): pass
    def reset(self, seed): return f"Game {seed}: say yes."
    def step(self, action): return "Still here.", -0.1, action == "yes"
"""


@pytest.fixture
def game(tmp_path):
    (tmp_path / "game").mkdir()
    GAME.write(tmp_path / "game")
    return f"{MODULE}:{tmp_path}/game"


def test_it_is_made_and_says_its_optimum(game):
    env = simulators.make_offline_environment(game)
    assert (env.observation_space.shape, env.action_space.n) == ((13,), 2)
    assert simulators.find_best_possible_return(game) == 0.75
    assert simulators.find_best_possible_return("key-to-door") == 1.0
    assert simulators.find_best_possible_return("CartPole-v1") is None
    assert simulators.make_offline_environment(
        f"{game} | FrameStackObservation {{stack_size: 2}}"
    ).observation_space.shape == (26,)


class Waiting:
    """A policy that always says the same."""

    def act(self, observations):
        return torch.zeros(len(observations), dtype=torch.long)


def test_a_text_game_without_a_limit_ends_all_the_same(tmp_path, monkeypatch):
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments/mine.py").write_text(ENDLESS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(user_environments.host, "HOME", tmp_path)
    monkeypatch.setattr(simulators, "LONGEST", 40)
    Described("environments/mine.py:Game", {}, 60.0, 4, 0.9, ["wait", "yes"], 1.0, "").write(tmp_path)
    user_environments.close_hosts()
    played = play_seeded_episodes(f"{MODULE}:{tmp_path}", wrap_as_player(Waiting()), 2, seed=0)
    user_environments.close_hosts()
    assert (played.lengths.tolist(), played.truncated.tolist(), played.cut.tolist()) == (
        [40] * 2,
        [True] * 2,
        [True] * 2,
    )


def test_a_data_set_takes_it_along(game, tmp_path):
    record(tmp_path / "data", game, 4)
    (tmp_path / "game/environment.json").unlink()
    found = dataset_files.read_offline_dataset(tmp_path / "data")
    assert found.environment == f"{MODULE}:{tmp_path}/data"
    assert found.spaces.action == 2
    assert saved_environments.point_environment_id_to_folder("CartPole-v1", tmp_path) == "CartPole-v1"
    wrapped = saved_environments.point_environment_id_to_folder(
        f"{MODULE}:elsewhere | TimeAwareObservation", tmp_path / "data"
    )
    assert wrapped == f"{MODULE}:{tmp_path}/data | TimeAwareObservation"


def test_another_game_is_another_environment(game, tmp_path):
    assert not saved_environments.is_from_other_environment(tmp_path / "game", game)
    assert not saved_environments.is_from_other_environment(tmp_path, game), (
        "nothing there says what it was recorded in"
    )
    (tmp_path / "other").mkdir()
    described = json.loads((tmp_path / "game/environment.json").read_text())
    (tmp_path / "other/environment.json").write_text(json.dumps({**described, "actions": ["go west", "take lamp"]}))
    assert saved_environments.is_from_other_environment(tmp_path / "other", game)
    assert saved_environments.is_from_other_environment(tmp_path / "game", "CartPole-v1")


def test_other_names_are_no_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert saved_environments.find_environment_folder("CartPole-v1") is None
    assert saved_environments.find_environment_folder("their_carts:TheirCart-v0") is None
    Path("environment.json").write_text("{}")
    assert saved_environments.find_environment_folder("CartPole-v1") is None


def test_a_module_that_makes_none_is_one_line(game):
    with pytest.raises(DataError, match=r"^environment tasks\.stage:[^\n]+: cannot be made: AttributeError: [^\n]+$"):
        simulators.make_offline_environment(game.replace(MODULE, "tasks.stage"))
