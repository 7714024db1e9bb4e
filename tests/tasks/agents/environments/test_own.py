"""Environments of the user's: what they are asked, and hostile ones, which cost one episode and name themselves."""

import os
import re
import time
from itertools import islice
from pathlib import Path

import psutil
import pytest

from tasks.agents.environments import own
from tasks.agents.environments.games import games, optimum, solver, step_all
from tasks.agents.environments.own import Own, close_hosts
from tasks.agents.environments.protocol import GameFault, SettingError
from tests.tasks import forks

HEADER = """
import math, os, time

class Game:
    def __init__(self, settings):
        self.settings = settings
    def reset(self, seed):
        self.seed, self.turn = seed, 0
        return f"Game {seed} of {self.settings.get('size', 1)}."
    def step(self, action):
        self.turn += 1
        if action.startswith("do "):
            return eval(action[3:])
        return f"You said {action}.", 0.5, self.turn == 3, {"words": len(action.split())}
"""
PLAIN = HEADER


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "environments").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(own.host, "HOME", tmp_path)
    close_hosts()
    yield tmp_path
    close_hosts()


def make(folder, text=PLAIN, seconds=60.0, **settings):
    (folder / "environments/mine.py").write_text(text)
    return Own("environments/mine.py:Game", settings, seconds)


def test_what_it_says_and_pays_arrives(folder):
    game = make(folder, size=4)
    assert game.reset(7) == [{"role": "user", "content": "Game 7 of 4."}]
    turn = game.step("look around")
    assert (turn.observation, turn.reward, turn.done, turn.counted) == (
        "You said look around.",
        0.5,
        False,
        {"words": 2.0},
    )
    game.step("again")
    assert game.step("again").done
    assert solver(game) is None
    assert optimum(game) is None


MEETING = """
def meet(seed):
    open(f"begun/{seed}", "w").close()
    began = time.monotonic()
    while len(os.listdir("begun")) < 3 and time.monotonic() < began + 30:
        time.sleep(0.01)
    return f"{seed}: {len(os.listdir('begun'))}", 1.0, False
"""


def test_games_are_played_side_by_side(folder):
    """Each waits in its step until three have begun theirs; and no game hears of another."""
    several = [make(folder, HEADER + MEETING, seconds=120.0) for _ in range(3)]
    for seed, game in enumerate(several):
        game.reset(seed)
    (folder / "begun").mkdir()
    assert [turn.observation for turn in step_all(several, ["do meet(self.seed)"] * 3)] == ["0: 3", "1: 3", "2: 3"]


HOSTILE = {
    "time.sleep(60)": r"took longer than 2 s",
    "os._exit(3)": r"ended \(exit status 3\)",
    "os.kill(os.getpid(), 11)": r"ended \(signal 11\)",
    "os.killpg(0, 9)": r"ended \(signal 9\)",
    "1 / 0": r"ZeroDivisionError: division by zero",
    "(chr(97) * 2**26, 0.0, False)": r"step: the observation: expected at most 131072 letters, got 67108864",
    "('', 0.0, False, {str(n): n for n in range(10**5)})": r"said more than 1048576 bytes at once",
    "(chr(97) * 2**40, 0.0, False)": r"MemoryError",
    "('', math.nan, False)": r"step: the reward: expected a finite number, got nan \(float\)",
    "('', 'much', False)": r"step: the reward: expected a finite number, got 'much' \(str\)",
    "('', 1e300, False)": r"step: the reward: expected a finite number, got 1e\+300 \(float\)",
    "('', 0.0, 'no')": r"step: expected done to be True or False, got 'no' \(str\)",
    "(7, 0.0, False)": r"step: the observation: expected a text, got 7 \(int\)",
    "None": r"step: expected \(observation, reward, done\)",
    "('', 0.0, False, {'n': None})": r"step: n: expected a finite number, got None \(NoneType\)",
    "SystemExit('bye')": r"step: expected \(observation, reward, done\)",
}


@pytest.mark.parametrize("action", HOSTILE)
def test_a_hostile_step_costs_its_episode_and_names_itself(folder, action, capfd):
    seconds = 2.0 if "longer" in HOSTILE[action] else 60.0
    game, other = make(folder, seconds=seconds), make(folder, seconds=seconds)
    game.reset(11)
    other.reset(12)
    game.step("wait")
    turn = game.step(f"do {action}")
    assert (turn.observation, turn.reward, turn.done, turn.counted) == ("", 0.0, True, {"faults": 1.0})
    said = capfd.readouterr().err
    assert re.search(rf"environments/mine\.py:Game: game 11, turn 2: .*({HOSTILE[action]})", said), said
    assert other.step("hello").observation == "You said hello."
    assert game.reset(13)[0]["content"].startswith("Game 13")


def test_what_it_prints_does_no_harm(folder, capfd):
    game = make(
        folder, HEADER.replace("        self.turn += 1\n", "        self.turn += 1\n        print('{\"id\": 0}')\n")
    )
    game.reset(1)
    assert game.step("hello").observation == "You said hello."
    assert '{"id": 0}' in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("def broken(:\n    pass\n", r"environments/mine\.py:1: invalid syntax"),
        ("import nothing_of_this_name\n", r"environments/mine\.py:1: ModuleNotFoundError: No module named"),
        ("class Other: pass\n", r"environments/mine\.py has no class Game"),
        ("import os; os._exit(1)\n", r"the process of the environment ended \(1\)"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_one_line(folder, text, line):
    with pytest.raises(SettingError, match=line):
        make(folder, text)


def test_games_that_cannot_be_opened_are_passed_over_and_none_is_refused(folder, capfd):
    some = HEADER.replace(
        "self.seed, self.turn = seed, 0", 'self.seed, self.turn = seed, 0; assert seed % 3, "a bad seed"'
    )
    (folder / "environments/mine.py").write_text(some)
    found = [game.seed for game in islice(games("environments/mine.py:Game", {}, "train", 0, 60.0), 10)]
    assert found
    assert all(seed % 3 for seed in found)
    assert (
        "environments/mine.py:Game: game 0: environments/mine.py:8: AssertionError: a bad seed"
        in capfd.readouterr().err
    )
    close_hosts()
    (folder / "environments/mine.py").write_text(HEADER.replace("return f", "return 1 / 0 or f"))
    with pytest.raises(SettingError, match=r"20 games in a row cannot be opened; the last one: .*ZeroDivisionError"):
        next(games("environments/mine.py:Game", {}, "train", 0, 60.0))


@pytest.mark.parametrize("said", ["[]", "[{'role': 'user'}]", "[{'role': 'wizard', 'content': ''}]", "7"])
def test_an_opening_is_messages(folder, said):
    game = make(folder, HEADER.replace("return f\"Game {seed} of {self.settings.get('size', 1)}.\"", f"return {said}"))
    with pytest.raises(GameFault):
        game.reset(0)


def test_no_process_is_left(folder):
    game, other = make(folder), make(folder)
    game.reset(0)
    other.reset(1)
    process = psutil.Process(game.host.process.pid)
    assert len(process.children()) == 2
    game.close()
    del other
    deadline = time.monotonic() + 60
    while process.children() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not process.children()
    game.reset(2)
    [child] = process.children()
    game.host.connection.close()  # as if this process had been killed
    process.wait(60)
    forks.wait_for_end([child])


def test_random_numbers_follow_from_the_seed(folder):
    text = HEADER.replace("import math", "import random, math").replace(
        'f"Game {seed} of', 'f"{random.random()} Game {seed} of'
    )
    one, other = make(folder, text), make(folder, text)
    assert one.reset(3) == other.reset(3)
    assert one.reset(3) != other.reset(4)


def test_the_example_is_played_best_as_it_says():
    root = Path(__file__).parents[4]
    before = Path.cwd()
    os.chdir(root)
    try:
        close_hosts()
        for game in islice(games("environments/guess.py:Guess", {"largest": 9, "turns": 4}, "train", 0), 5):
            expert = solver(game.environment)
            done, total = False, 0.0
            while not done:
                turn = game.environment.step(expert.best_action())
                done, total = turn.done, total + turn.reward
            assert total == 1.0
            assert optimum(game.environment) is None
    finally:
        close_hosts()
        os.chdir(before)
