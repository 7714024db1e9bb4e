"""Environments whose processes fork or lie: what is said belongs to its question, or costs the episode, or ends the
stage with one line.
"""

import re

import pytest

from tasks.agents.environments.protocol import GameError, GameFault
from tasks.agents.environments.user_environments import HostedGame
from tasks.children import child
from tests.tasks.agents.environments.test_user_environments import folder

__all__ = ["folder"]


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions are numbered from 1 on, so that what is said here can repeat their numbers."""
    monkeypatch.setattr(child, "draw_first_call_number", lambda: 1)


HEADER = """
import ctypes, os, stat, sys, time

def sockets():
    for n in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(n).st_mode):
                yield n
        except OSError:
            pass

class Game:
    def __init__(self, settings):
        self.turn = 0
    def reset(self, seed):
        return f"Game {seed}"
    def step(self, action):
        self.turn += 1
        exec(action)
        return f"turn {self.turn}", float(self.turn), False
"""


def make(folder, text=HEADER, seconds=60.0):
    (folder / "environments/mine.py").write_text(text)
    return HostedGame("environments/mine.py:Game", {}, seconds)


@pytest.mark.parametrize(
    "fork", ["os.fork()", "ctypes.CDLL(None).fork()", "os.fork(), os.fork()", "os.fork() or sys.exit()"]
)
def test_a_fork_of_an_episode_answers_nothing(folder, fork):
    game = make(folder)
    game.reset(0)
    turns = [game.step(fork if turn % 2 else "pass") for turn in range(1, 7)]
    assert [(turn.observation, turn.reward) for turn in turns] == [(f"turn {n}", float(n)) for n in range(1, 7)]


def test_a_fork_of_the_file_serves_nothing(folder):
    game = make(folder, "import os\nos.fork()" + HEADER)
    for seed in range(3):
        assert game.reset(seed)[0]["content"] == f"Game {seed}"
        assert game.step("pass").observation == "turn 1"


ELSE = "something else than its host wrote to its connection"
STEP = '"observation": "no", "reward": 0.0, "done": false, "counted": {}'


def told(call, facts):
    """A reply, as the code that writes it."""
    return repr(f'{{"call": {call}, {facts}}}\n'.encode())


LIES = {
    r"b'[]\n'": ELSE,
    r"b'{}\n'": ELSE,
    r"b'[' * 90000 + b'\n'": ELSE,
    r"b'\xff\n'": ELSE,
    told(1, STEP): ELSE,  # an earlier question's number
    r"""b'{"call": 2, "observation": "no"}\n'""": ELSE,
    told(2, STEP.replace("0.0", "NaN")): ELSE,
    told(2, STEP.replace("false", '"no"')): ELSE,
    r"""b'{"call": 2, "fault": "' + b'x' * 900000 + b'"}\n'""": "xxx",
    r"b'x' * 2**21": "said more than 1048576 bytes at once",
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_costs_its_episode(folder, lie, capfd):
    game, other = make(folder), make(folder)
    game.reset(11)  # question 1
    turn = game.step(f"[os.write(n, {lie}) for n in sockets()]; time.sleep(60)")
    assert (turn.observation, turn.reward, turn.done, turn.counted) == ("", 0.0, True, {"faults": 1.0})
    [said] = capfd.readouterr().err.splitlines()
    assert said.startswith(f"environments/mine.py:Game: game 11, turn 1: {LIES[lie]}")
    assert len(said) < 1200
    assert other.reset(12)[0]["content"] == "Game 12"


def test_what_is_said_between_two_questions_is_no_answer_to_the_next(folder, capfd):
    """It is written by a thread, when the host has had the reply to the first."""
    game = make(folder)
    game.reset(5)
    late = (
        "import threading; write = lambda: [os.write(n, b'{}\\n') for n in sockets()]; threading.Timer(0.2, "
        "write).start()"
    )
    assert game.step(late).observation == "turn 1"
    while not (turn := game.step("time.sleep(0.05)")).done:
        pass
    assert turn.counted == {"faults": 1.0}
    assert ELSE in capfd.readouterr().err
    assert game.reset(6)[0]["content"] == "Game 6"


HOSTS = {
    r"b'{}\n'": "said '{}', which is no reply to what it was asked",
    r"""b'{"call": 0}\n'""": """said '{"call": 0}', which is no reply to what it was asked""",
    r"""b'{"call": 1}\n'""": "said something else than its host",
    r"""b'{"call": 1, "spent": "much", "most": 1}\n'""": "said something else than its host",
    r"b'x' * 2**20 * 17": "said more than 16 MiB at once",
}
HOST = """
line = max(sockets())
os.write(line, b'{"call": 0}\\n')
os.read(line, 10**6)
left = LIE
while left:
    left = left[os.write(line, left):]
time.sleep(60)
"""


@pytest.mark.parametrize("lie", HOSTS)
def test_a_lie_of_the_host_ends_the_stage(folder, lie):
    """Of which the file's own code is a part while it is imported."""
    with pytest.raises(GameError, match=f"^environments/mine.py:Game: its process {re.escape(HOSTS[lie])}") as stopped:
        make(folder, HEADER + HOST.replace("LIE", lie)).reset(0)
    assert len(str(stopped.value)) < 300


def test_a_fault_is_shown_without_power_over_a_terminal(folder, capfd):
    game = make(folder, HEADER.replace('return f"Game', "raise ValueError('\\x1b[31mred') or f\"Game"))
    with pytest.raises(GameFault):
        game.reset(0)
    assert r"ValueError: \x1b[31mred" in capfd.readouterr().err
