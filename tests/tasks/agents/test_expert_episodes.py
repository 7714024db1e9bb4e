"""The expert's episodes as tables."""

import json

import pytest
from pydantic import ValidationError

from tasks.agents.expert_episodes import ExpertEpisodesConfig
from tasks.agents.playing import recorded as on_disk
from tasks.agents.playing.tables import Episodes, Turns
from tasks.common import tables
from tests.conftest import PARAMS
from tests.tasks.agents import small


def test_each_game_is_won_as_search_says(recorded):
    for split, count in (("train", 24), ("validation", 6)):
        turns = tables.read(Turns, recorded / f"{split}_turns.parquet")
        episodes = tables.read(Episodes, recorded / f"{split}_episodes.parquet")
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
