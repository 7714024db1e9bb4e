"""The text game: its commands, its rewards, and the optimum that its search knows."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.agents.environments.games import iterate_games
from tasks.agents.environments.protocol import SettingError, Solvable
from tasks.agents.environments.rooms import CURSED, Rooms

settings = st.fixed_dictionaries(
    {
        "rooms": st.integers(3, 8),
        "doors": st.integers(0, 2),
        "traps": st.integers(0, 2),
        "turns": st.integers(15, 30),
        "turn_cost": st.sampled_from([0.0, 0.02]),
        "shaping": st.sampled_from([0.0, 0.1]),
    }
)


def played(game):
    total, done, turns = 0.0, False, 0
    while not done:
        turn = game.step(game.best_action())
        total, done, turns = total + turn.reward, turn.done, turns + 1
    return total, turns, turn


@given(settings, st.integers(0, 10**6))
def test_the_best_play_earns_the_optimum(given, seed):
    game = Rooms(given)
    assert isinstance(game, Solvable)
    game.reset(seed)
    optimum = game.optimum()
    total, turns, last = played(game)
    assert total == pytest.approx(optimum)
    assert optimum == pytest.approx(1 + (given["shaping"] - given["turn_cost"]) * turns)
    assert last.counted["won"] == 1


@given(settings, st.integers(0, 10**6), st.integers(0, 10**6))
def test_no_play_earns_more_than_the_optimum(given, seed, draw):
    """Random commands, cursed things among them; shaping pays the way there and takes it back."""
    game, generator = Rooms(given), random.Random(draw)
    game.reset(seed)
    optimum, total, done = game.optimum(), 0.0, False
    words = [*(f"go {way}" for way in ("north", "east", "south", "west")), "take lamp", "take red key", "open red door"]
    words += [f"take cursed {thing}" for thing in CURSED]
    while not done:
        turn = game.step(game.best_action() if generator.random() < 0.3 else generator.choice(words))
        total, done = total + turn.reward, turn.done
    assert total <= optimum + 1e-9


def test_a_seed_is_one_game_and_another_one_another():
    openings = {}
    for seed in range(20):
        first, again = Rooms({"rooms": 6}).reset(seed), Rooms({"rooms": 6}).reset(seed)
        assert first == again
        openings[first[0]["content"]] = seed
    assert len(openings) > 15


@pytest.fixture
def behind_a_door():
    """A game in which the first room has a key and the locked door that it opens."""
    for seed in range(1000):
        game = Rooms({"rooms": 2, "doors": 1, "turn_cost": 0.0, "turns": 30})
        [opening] = game.reset(seed)
        if "north (red door, locked)" in opening["content"]:
            return game
    raise AssertionError("no such game")


def test_commands_are_heard_as_a_person_says_them(behind_a_door):
    game = behind_a_door
    said = [
        ("dance", "I do not understand that."),
        ("go south", "There is no way in that direction."),
        ("n", "The red door is locked."),
        ("open the red door", "You have no red key."),
        ("take lamp", "There is no such thing here."),
        ("open blue door", "There is no such door here."),
        ("Pick up the RED key.", "You take the red key."),
        ("take red key", "There is no such thing here."),
        ("unlock red door", "You open the red door."),
        ("walk north", "You go north."),
    ]
    for command, heard in said:
        turn = game.step(command)
        assert (turn.observation.partition("\n")[0], turn.reward, turn.done) == (heard, 0.0, False), command
    last = game.step("get lamp")
    assert (last.reward, last.done, last.counted["won"]) == (1.0, True, 1.0)


def test_a_cursed_thing_costs_its_penalty_at_once_and_the_game_goes_on():
    game = Rooms({"rooms": 2, "doors": 0, "traps": 1, "trap_penalty": 0.5, "turn_cost": 0.1})
    seed = next(seed for seed in range(100) if "cursed" in game.reset(seed)[0]["content"])
    [opening] = game.reset(seed)
    thing = opening["content"].rpartition("cursed ")[2].split(".")[0].split()[0]
    before = game.optimum()
    turn = game.step(f"take cursed {thing}")
    assert turn.reward == pytest.approx(-0.6)
    assert not turn.done
    assert game.optimum() == pytest.approx(before)


def test_turns_are_used_up():
    game = Rooms({"rooms": 2, "doors": 0, "turns": 3})
    game.reset(0)
    assert [game.step("dance").done for _ in range(3)] == [False, False, True]


def test_shaping_pays_for_the_way_and_takes_it_back():
    game = Rooms({"rooms": 5, "doors": 0, "shaping": 0.25, "turn_cost": 0.0, "turns": 30})
    seed = next(seed for seed in range(100) if game.reset(seed) and game.distances[game.state] >= 3)
    game.reset(seed)
    way = game.best_action().removeprefix("go ")
    back = {"north": "south", "south": "north", "east": "west", "west": "east"}[way]
    assert [game.step(f"go {one}").reward for one in (way, back)] == [0.25, -0.25]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"rooms": 1}, "rooms: expected a number from 2 to 12, got 1"),
        ({"rooms": 3, "doors": 3}, "doors: expected fewer than rooms = 3, got 3"),
        ({"monsters": 1}, "monsters: no such setting; expected one of doors, rooms, shaping, "),
        ({"rooms": 3.5}, "rooms: expected a whole number, got 3.5"),
        ({"turn_cost": True}, "turn_cost: expected a number, got True"),
    ],
)
def test_wrong_settings_are_one_line(given, line):
    with pytest.raises(SettingError) as error:
        Rooms(given)
    assert str(error.value).startswith(line)


def test_settings_that_no_game_can_be_won_with_are_one_line():
    """A door and its key take more than three turns."""
    with pytest.raises(
        SettingError, match="games in a row cannot be opened; the last one: none of 100 games can be won within 3"
    ):
        next(iterate_games("rooms", {"rooms": 2, "doors": 1, "turns": 3}, "train", 0))
