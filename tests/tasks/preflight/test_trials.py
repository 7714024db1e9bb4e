"""Environments are tried before a run: what each is in a line, and the first that cannot be played ends the look."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.common.errors import DataError
from tasks.preflight import trials
from tests import repository
from tests.tasks.agents.environments.test_user_environments import HEADER, folder

__all__ = ["folder"]
KIND = "environments/mine.py:Game"


def test_an_environment_says_what_it_is():
    """CartPole pays 1 a step; the graph costs 1 a step, and its walks are cut at 10."""
    box = "observations Box(4,) of float32, actions Discrete(2)"
    assert (
        trials.try_offline_environment("CartPole-v1")
        == f"{box}, at most 500 steps an episode; 5 random steps paid 1 to 1 each"
    )
    assert trials.try_offline_environment("graph").endswith(
        ", at most 10 steps an episode; 5 random steps paid -1 to -1 each"
    )
    with pytest.raises(DataError, match="CartPole-v7: "):
        trials.try_offline_environment("CartPole-v7")


def test_a_game_says_what_it_is():
    line = trials.try_agent_environment("rooms", {"rooms": 3, "doors": 1, "turns": 8}, 10.0, 0, 1)
    assert line.startswith("game 0 opens with ")
    assert line.endswith(" characters, knows its best play; 3 turns paid -0.02 to -0.02 each")


def written(folder: Path, text: str = HEADER) -> None:
    (folder / "environments/mine.py").write_text(text)


def test_a_game_of_ones_own_is_played_as_the_stages_play_it(folder):
    """It says something of `help`, pays a half for each of three turns, and knows no best play, which recorded games
    need.
    """
    written(folder)
    line = trials.try_agent_environment(KIND, {"size": 4}, 60.0, 0, 0)
    assert line.endswith("characters, knows no best play; 3 turns paid 0.5 to 0.5 each")
    with pytest.raises(Exception, match=r"has no best_action\(\); expected 0 as episodes"):
        trials.try_agent_environment(KIND, {}, 60.0, 0, 5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            HEADER.replace('f"You said', '1 / 0 * f"You said'),
            r"mine.py:Game: game \d+, turn 1: .*ZeroDivisionError",
        ),
        (HEADER.replace("import math", "import maths"), "maths"),
        (HEADER.replace("class Game", "class Other"), "Game"),
        (HEADER.replace('return f"Game', "return 3 / 0 #"), "20 games in a row cannot be opened"),
    ],
)
def test_a_game_that_cannot_be_played_is_a_fault(folder, text, expected):
    written(folder, text)
    with pytest.raises(DataError, match=expected):
        trials.try_agent_environment(KIND, {}, 60.0, 0, 0)


def run(monkeypatch: pytest.MonkeyPatch, params: Path, *stages: str) -> int:
    """The process of the trials in this one, without its clock."""
    monkeypatch.setattr(sys, "argv", ["trials", f"--params={params}", *stages])
    monkeypatch.setattr(signal, "setitimer", lambda *of: None)
    try:
        trials.main()
    except SystemExit as ended:
        return int(str(ended.code))
    return 0


def test_the_first_fault_ends_the_trials(tmp_path, monkeypatch, capsys):
    params = repository.write_params(tmp_path)
    params.write_text(params.read_text().replace("CartPole-v1: {", 'CartPole-v1: {id: "CartPole-v7", '))
    assert run(monkeypatch, params, "behaviour@graph", "behaviour@CartPole-v1", "behaviour@key-to-door") == 2
    out, error = capsys.readouterr()
    assert [line.partition(":")[0] for line in out.splitlines()] == ["behaviour@graph"]
    assert error.splitlines()[-1].startswith("behaviour@CartPole-v1: environment CartPole-v7: ")


def test_an_environment_that_a_stage_makes_is_not_tried(tmp_path, monkeypatch, capsys):
    params = repository.write_params(tmp_path)
    made = '"tasks.agents.environments.as_gymnasium:data/agent_episodes/rooms-mixed"'
    params.write_text(params.read_text().replace("CartPole-v1: {", f"CartPole-v1: {{id: {made}, "))
    assert run(monkeypatch, params, "behaviour@CartPole-v1") == 0
    assert capsys.readouterr().out == "behaviour@CartPole-v1: a stage of the run makes its environment first\n"


@pytest.mark.parametrize(
    ("code", "error", "line"),
    [
        (2, "tried: behaviour@a\nwarning\nbehaviour@a: no such thing", "behaviour@a: no such thing"),
        (
            -14,
            "tried: behaviour@a\ntried: behaviour@b\n",
            "behaviour@b: to make it, to reset it and to act a few times",
        ),
        (-11, "tried: behaviour@a\ntried: behaviour@b\n", "behaviour@b: its process ended (signal 11)"),
        (1, "tried: behaviour@a\nMemoryError", "behaviour@a: MemoryError"),
    ],
)
def test_however_the_process_ends_it_is_one_line(monkeypatch, code, error, line):
    started = []

    def ended(command, **options):
        started.append(command)
        return subprocess.CompletedProcess(command, code, "behaviour@a: fine\n", error)

    monkeypatch.setattr(subprocess, "run", ended)
    assert not list(trials.iterate_environment_trial_lines(Path("params.yaml"), ["sft", "transitions@x"]))
    assert not started, "nothing is played"
    found = trials.iterate_environment_trial_lines(Path("params.yaml"), ["sft", "behaviour@b", "behaviour@a"])
    assert next(found) == "behaviour@a: fine"
    with pytest.raises(DataError) as stopped:
        next(found)
    assert str(stopped.value).startswith(line)
    assert "\n" not in str(stopped.value)
    assert started[0][-2:] == ["behaviour@a", "behaviour@b"]


@pytest.mark.slow
def test_a_process_that_hangs_is_ended(tmp_path, monkeypatch):
    """An environment whose step never returns, in a package of its own."""
    package = tmp_path / "packages/hanging.py"
    package.parent.mkdir()
    package.write_text(
        "import time, gymnasium\n"
        "class Hanging(gymnasium.Env):\n"
        "    observation_space, action_space = gymnasium.spaces.Box(0, 1, (1,)), gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n        time.sleep(3600)\n"
        "gymnasium.register('Hanging-v0', Hanging, max_episode_steps=5)\n"
    )
    params = repository.write_params(tmp_path)
    params.write_text(params.read_text().replace("CartPole-v1: {", 'CartPole-v1: {id: "hanging:Hanging-v0", '))
    monkeypatch.setenv("PYTHONPATH", f"{package.parent}:{Path.cwd()}")
    program = "import sys; from tasks.preflight import trials; trials.SECONDS = 3; trials.main()"
    command = [sys.executable, "-c", program, f"--params={params}", "behaviour@CartPole-v1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == -signal.SIGALRM
    assert done.stderr.splitlines()[-1] == "tried: behaviour@CartPole-v1"
