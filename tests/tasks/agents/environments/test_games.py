"""Splits of games."""

import json
from itertools import islice

import pytest

from tasks.agents.environments import games as module
from tasks.agents.environments.games import KINDS, iterate_games
from tasks.agents.environments.protocol import SettingError
from tasks.agents.environments.splits import BUCKETS, compute_opening_split

SPLITS = ("train", "validation", "test")


@pytest.mark.parametrize("kind", KINDS)
def test_no_opening_is_in_two_splits(kind):
    openings = {
        split: {json.dumps(game.opening) for game in islice(iterate_games(kind, {}, split, 0), 60)} for split in SPLITS
    }
    assert all(openings.values())
    for one in SPLITS:
        for other in SPLITS:
            assert one == other or not openings[one] & openings[other]


@pytest.mark.parametrize("kind", KINDS)
def test_games_of_a_split_are_those_of_the_seeds_from_the_first_on(kind):
    first = [game.seed for game in islice(iterate_games(kind, {}, "train", 100), 30)]
    assert first == sorted(set(first))
    assert first[0] >= 100
    later = [game.seed for game in islice(iterate_games(kind, {}, "train", first[10]), 5)]
    assert later == first[10:15]


class Same:
    """A game that always opens alike."""

    def __init__(self, settings):
        pass

    def reset(self, seed):
        return [{"role": "user", "content": "say yes"}]


def test_games_that_all_open_alike_end_the_search_for_other_splits(monkeypatch):
    monkeypatch.setattr(module, "KINDS", {"same": Same})
    own = compute_opening_split(Same({}).reset(0))
    for split in SPLITS:
        if split == own:
            assert next(iterate_games("same", {}, split, 5)).seed == 5
        else:
            with pytest.raises(
                SettingError, match=f"same: none of 2000 games in a row is of the split {split}; expected openings"
            ):
                next(iterate_games("same", {}, split, 0))


def test_the_splits_are_ten_tenths():
    assert sorted(bucket for buckets in BUCKETS.values() for bucket in buckets) == [*range(10)]
