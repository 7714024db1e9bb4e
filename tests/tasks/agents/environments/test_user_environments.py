"""Environments of the user's: what they are asked, and hostile ones, which cost one episode and name themselves."""

import os
import re
import time
from itertools import islice
from pathlib import Path

import psutil
import pytest

from tasks.agents.environments import user_environments
from tasks.agents.environments.games import find_optimal_return, find_solver, iterate_games, step_environments
from tasks.agents.environments.protocol import GameError, GameFault, SettingError
from tasks.agents.environments.user_environments import HostedGame, close_hosts
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
WAITING = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "environments").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(user_environments.host, "HOME", tmp_path)
    close_hosts()
    yield tmp_path
    close_hosts()


def make(folder, text=PLAIN, seconds=60.0, **settings):
    (folder / "environments/mine.py").write_text(text)
    return HostedGame("environments/mine.py:Game", settings, seconds)


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
    assert find_solver(game) is None
    assert find_optimal_return(game) is None


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
    assert [turn.observation for turn in step_environments(several, ["do meet(self.seed)"] * 3)] == [
        "0: 3",
        "1: 3",
        "2: 3",
    ]


HOSTILE = {
    "time.sleep(60)": r"took longer than 2 s; its file starts threads when it is imported, which an episode does not",
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
    "('', 0.0, False, False, {})": r"step: expected .* got \('', 0.0, False, False, {}\) \(tuple\)",
    "('', 0.0, False, False)": r"step: expected a dictionary of counts behind done, got False \(bool\)",
    "('', 0.0, False, {'faults': 0})": r"step: faults: expected another name for a count",
    "('', 0.0, None)": r"step: expected done to be True or False, got None \(NoneType\)",
    "('', 0.0, math)": r"step: expected done to be True or False, got <module",
    "('', None, False)": r"step: the reward: expected a finite number, got None \(NoneType\)",
    "('', '0.5', False)": r"step: the reward: expected a finite number, got '0.5' \(str\)",
    "('', [0.5], False)": r"step: the reward: expected a finite number, got \[0.5\] \(list\)",
    "(None, 0.0, False)": r"step: the observation: expected a text, got None \(NoneType\)",
    "__import__('sys').exit('bye')": r"SystemExit: bye",
}


@pytest.mark.parametrize("action", HOSTILE)
def test_a_hostile_step_costs_its_episode_and_names_itself(folder, action, capfd):
    seconds = 2.0 if "longer" in HOSTILE[action] else 60.0
    text = HEADER + WAITING if "longer" in HOSTILE[action] else HEADER
    game, other = make(folder, text, seconds), make(folder, text, seconds)
    game.reset(11)
    other.reset(12)
    game.step("wait")
    turn = game.step(f"do {action}")
    assert (turn.observation, turn.reward, turn.done, turn.counted) == ("", 0.0, True, {"faults": 1.0})
    said = capfd.readouterr().err
    assert re.search(rf"environments/mine\.py:Game: game 11, turn 2: .*({HOSTILE[action]})", said), said
    assert other.step("hello").observation == "You said hello."
    assert game.reset(13)[0]["content"].startswith("Game 13")


PAID = {
    "('x', __import__('decimal').Decimal('0.5'), 0)": (0.5, False),
    "('x', __import__('numpy').array([0.25]), __import__('numpy').False_)": (0.25, False),
    "('x', __import__('numpy').float32(-2), __import__('numpy').array([True]))": (-2.0, True),
    "('x', True, 1, None)": (1.0, True),
}


@pytest.mark.parametrize("action", PAID)
def test_other_kinds_of_numbers_are_numbers(folder, action):
    game = make(folder)
    game.reset(1)
    turn = game.step(f"do {action}")
    assert (turn.reward, turn.done, turn.counted) == (*PAID[action], {})


def test_halves_of_a_pair_are_replaced_wherever_a_text_comes_from(folder, capfd):
    """The two halves of a letter beyond 16 bits become it; a half alone becomes U+FFFD."""
    half, whole = r"\udce9", r"\ud83d\ude00"
    game = make(folder, HEADER.replace('return f"Game {seed}', f'return f"{half}{whole}{{seed}}'))
    assert game.reset(1)[0]["content"] == "\ufffd\U0001f6001 of 1."
    turn = game.step(f"do ('caf{half}', 1.0, False, {{'{half}': 1}})")
    assert (turn.observation, turn.counted) == ("caf\ufffd", {"\ufffd": 1.0})
    game.step(f"do [][0] if '{half}' else None")
    assert game.step(f"do open('{half}')").counted == {"faults": 1.0}
    assert "\\udce9" not in capfd.readouterr().err


LIMITED = HEADER.replace("self.settings = settings", "self.settings, self.max_turns = settings, settings['most']")


def test_an_episode_is_cut_off_after_its_limit_of_turns(folder):
    game = make(folder, LIMITED, most=2)
    game.reset(1)
    assert not game.step("one").done
    turn = game.step("two")
    assert (turn.observation, turn.reward, turn.done) == ("You said two.", 0.5, True)
    assert turn.counted == {"words": 1.0, "turns_cut": 1.0}
    game.reset(1)
    assert game.step("do ('', 0.0, True)").counted == {}, "a game that ends by itself is not cut"


def test_an_environment_without_a_limit_has_one(folder):
    game = make(folder, HEADER.replace("self.turn == 3", "False"))
    game.reset(1)
    turns = 0
    while not (turn := game.step("again")).done:
        turns += 1
    assert (turns, turn.counted["turns_cut"]) == (999, 1.0)


@pytest.mark.parametrize("most", [0, 1.5, "many", True])
def test_a_limit_is_a_whole_number(folder, most):
    with pytest.raises(GameFault, match="max_turns: expected a whole number from 1 to 10"):
        make(folder, LIMITED, most=most).reset(1)


def test_a_game_that_takes_too_long_in_all_ends_the_stage(folder):
    """However short an answer is, it takes longer than nothing."""
    game = make(
        folder,
        HEADER.replace("self.settings = settings", "self.max_seconds = settings['most']; self.settings = {}"),
        most=1e-9,
    )
    with pytest.raises(GameError, match=r"mine\.py:Game: game 7: its answers took .* s in all by turn 0; .* 1e-09 s"):
        game.reset(7)
    game = make(folder, most=1.0)
    game.reset(8)
    game.step("once")
    game.host.reply = lambda number: {"spent": 601.5, "most": 600.0}
    with pytest.raises(GameError, match=r"game 8: its answers took 601\.5 s in all by turn 2; expected at most 600 s"):
        game.step("again")


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
        ("import os; os._exit(1)\n", r"the process of the environment ended \(exit status 1\)"),
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
    found = [game.seed for game in islice(iterate_games("environments/mine.py:Game", {}, "train", 0, 60.0), 10)]
    assert found
    assert all(seed % 3 for seed in found)
    assert (
        "environments/mine.py:Game: game 0: environments/mine.py:8: AssertionError: a bad seed"
        in capfd.readouterr().err
    )
    close_hosts()
    (folder / "environments/mine.py").write_text(HEADER.replace("return f", "return 1 / 0 or f"))
    with pytest.raises(SettingError, match=r"20 games in a row cannot be opened; the last one: .*ZeroDivisionError"):
        next(iterate_games("environments/mine.py:Game", {}, "train", 0, 60.0))


OPENINGS = {
    "[]": "expected the last message to be of the user",
    "[{'role': 'user'}]": "expected messages with role",
    "[{'role': 'wizard', 'content': ''}]": "expected messages with role",
    "[{'role': 'user', 'content': None}]": "expected messages with role",
    "{'role': 'user', 'content': ''}": "expected a text or a list of messages",
    "7": "expected a text or a list of messages",
    "None": "expected a text or a list of messages",
    "b'go'": "expected a text or a list of messages",
    "('go', {'won': False})": r"expected a text or messages alone, not a pair with an info, got \('go', ",
    "([{'role': 'user', 'content': 'go'}], {})": "expected a text or messages alone, not a pair",
    "('go', None)": "expected a text or messages alone, not a pair",
}


@pytest.mark.parametrize("opening", OPENINGS)
def test_an_opening_is_messages(folder, opening):
    game = make(
        folder, HEADER.replace("return f\"Game {seed} of {self.settings.get('size', 1)}.\"", f"return {opening}")
    )
    with pytest.raises(GameFault, match=f"reset: {OPENINGS[opening]}"):
        game.reset(0)


POOL = """
import threading
import types, sys
torch = sys.modules["torch"] = types.ModuleType("torch")
torch.threads = 8
torch.set_num_threads = lambda count: setattr(torch, "threads", count)
""" + HEADER.replace(
    "def reset(self, seed):",
    "def reset(self, seed):\n        self.limit = os.environ['OMP_NUM_THREADS'], torch.threads",
)


def test_an_episode_waits_for_no_thread_of_its_host(folder, monkeypatch):
    """Of a pool of threads nothing is left in a fork, so none is started, and a torch that has one does without."""
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    game = make(folder, POOL)
    game.reset(1)
    assert game.step("do (str(self.limit), 0.0, False)").observation == "('1', 1)"


def test_an_optimum_that_is_none_is_one_line(folder):
    game = make(folder, HEADER + "    def optimum(self):\n        return None\n")
    game.reset(3)
    with pytest.raises(GameError, match=r"mine\.py:Game: game 3, turn 0: optimum: expected a finite number, got None"):
        find_optimal_return(game)


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
        for game in islice(iterate_games("environments/guess.py:Guess", {"largest": 9, "turns": 4}, "train", 0), 5):
            expert = find_solver(game.environment)
            done, total = False, 0.0
            while not done:
                turn = game.environment.step(expert.best_action())
                done, total = turn.done, total + turn.reward
            assert total == 1.0
            assert find_optimal_return(game.environment) is None
    finally:
        close_hosts()
        os.chdir(before)
