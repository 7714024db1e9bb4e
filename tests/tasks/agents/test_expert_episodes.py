"""The expert's episodes as tables."""

import json

import pytest
from pydantic import ValidationError

from tasks.agents import expert_episodes
from tasks.agents.environments import user_environments
from tasks.agents.expert_episodes import ExpertEpisodesConfig
from tasks.agents.playing import episode_files as on_disk
from tasks.agents.playing.tables import EpisodeTable, Turns
from tasks.common import tables
from tasks.common.errors import DataError
from tests.conftest import PARAMS
from tests.tasks.agents import small


def test_each_game_is_won_as_search_says(recorded):
    for split, count in (("train", 24), ("validation", 6)):
        turns = tables.read_table(Turns, recorded / f"{split}_turns.parquet")
        episodes = tables.read_table(EpisodeTable, recorded / f"{split}_episodes.parquet")
        assert len(episodes) == count
        assert (turns.groupby("episode")["reward"].sum() - episodes["optimum"]).abs().max() < 1e-9
        assert (turns.groupby("episode").size() == episodes["turns"]).all()
        last = turns[turns["turn"] == turns.groupby("episode")["turn"].transform("max")]
        assert set(last["action"]) == {"take lamp"}
        for opened in turns["observation"][turns["turn"] == 0]:
            assert json.loads(opened)[0]["role"] == "user"


def test_recording_again_is_the_same_and_another_seed_is_not(recorded, tmp_path):
    again = small.record(tmp_path)
    for file in recorded.iterdir():
        assert (again / file.name).read_bytes() == file.read_bytes()
    world = on_disk.read_world(recorded)
    assert vars(world) == {"kind": "rooms", "settings": small.ROOMS["settings"], "seed": 0, "seconds": 10.0}


FAULTY = """
class Game:
    def __init__(self, settings):
        self.every = settings["every"]
    def reset(self, seed):
        self.seed = seed
        return f"Game {seed}."
    def best_action(self):
        return "go"
    def step(self, action):
        return "", float("nan") if self.seed % self.every == 0 else 1.0, True
"""


@pytest.fixture
def faulty(tmp_path, monkeypatch):
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments/mine.py").write_text(FAULTY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(user_environments.host, "HOME", tmp_path)
    user_environments.close_hosts()
    yield {"kind": "environments/mine.py:Game", "seconds": 5.0, "episodes": 12, "validation": 3}
    user_environments.close_hosts()


def test_games_that_the_environment_s_faults_ended_are_left_out_and_counted(faulty, tmp_path):
    """Every second game's reward is no number."""
    section = {
        **PARAMS["expert_episodes"],
        "environments": {"mine": {**faulty, "settings": {"every": 2}}},
        "environment_files": "environments/mine.py",
    }
    folder = tmp_path / "episodes/mine"
    metrics = expert_episodes.run(
        ExpertEpisodesConfig.model_validate(section), tmp_path / "environments/mine.py", folder
    )
    episodes = tables.read_table(EpisodeTable, folder / "train_episodes.parquet")
    assert 0 < len(episodes) < 12
    assert episodes["episode"].tolist() == [*range(len(episodes))]
    assert (episodes["game"] % 2 == 1).all()
    assert (episodes["total"] == 1.0).all()
    assert metrics["train"]["faults"] == 1 - len(episodes) / 12


def test_where_faults_end_every_game_there_is_nothing_to_clone(faulty, tmp_path):
    with pytest.raises(
        DataError,
        match=r"mine\.py:Game: all 12 games of the split train were ended by faults of the environment; "
        r"the last one: game \d+, turn 1: step: the reward: expected a finite number, got nan",
    ):
        small.record(tmp_path, {**faulty, "settings": {"every": 1}})


ENDLESS = FAULTY.replace("True\n", "self.seed % self.every > 0\n").replace('float("nan")', "0.5")
ENDLESS = ENDLESS.replace("def reset", "max_turns = 3\n    def reset")


def test_games_that_the_expert_does_not_end_are_cut_and_counted(faulty, tmp_path):
    (tmp_path / "environments/mine.py").write_text(ENDLESS)
    folder = small.record(tmp_path, {**faulty, "settings": {"every": 2}})
    episodes = tables.read_table(EpisodeTable, folder / "train_episodes.parquet")
    assert (episodes["cut"] == (episodes["game"] % 2 == 0)).all()
    assert (episodes["turns"] == episodes["cut"].map({True: 3, False: 1})).all()
    assert 0 < episodes["cut"].mean() < 1


@pytest.mark.parametrize(("episodes", "others"), [(3, 2), (10**6, 4)])
def test_an_expert_that_ends_no_game_is_one_line_with_the_game_and_its_turns(faulty, tmp_path, episodes, others):
    (tmp_path / "environments/mine.py").write_text(ENDLESS)
    line = (
        rf"mine\.py:Game: game \d+ and the {others} games after it had not ended after 3 turns; expected an expert that"
    )
    with pytest.raises(DataError, match=line):
        small.record(tmp_path, {**faulty, "settings": {"every": 1}, "episodes": episodes})


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"kind": "chess"},
            "expected rooms, calculator, facts, key-to-door, closed-book or a class such as environments/mine.py:Maze",
        ),
        ({"settings": {"rooms": 99}}, "rooms: expected a number from 2 to 12"),
        ({"settings": {"walls": 1}}, "walls: no such setting; expected one of doors, rooms"),
    ],
)
def test_wrong_environments_are_one_line_before_anything_runs(change, line):
    section = {**PARAMS["expert_episodes"], "environments": {"rooms": {**small.ROOMS, **change}}}
    with pytest.raises(ValidationError) as error:
        ExpertEpisodesConfig.model_validate(section)
    assert line in str(error.value)
