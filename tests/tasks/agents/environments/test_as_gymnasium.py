"""A text game in Gymnasium's shape."""

import warnings

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from tasks.agents.environments import as_gymnasium
from tasks.agents.environments.as_gymnasium import Described, TextGame, hash_game_code
from tasks.agents.environments.protocol import Turn
from tasks.agents.environments.splits import compute_opening_split
from tasks.agents.environments.vectors import GameReader
from tests.tasks.agents.small import NONE

ACTIONS = ["go east", "go north", "go south", "go west", "open red door", "take lamp", "take red key"]
ROOMS = Described("rooms", {"rooms": 3, "turns": 4}, 10.0, 16, 0.9, ACTIONS, 0.9, "")


def played(env, seed, actions):
    seen, info = env.reset(seed=seed)
    rows = [(seen.tolist(), info)]
    for action in actions:
        seen, *rest = env.step(action)
        rows.append((seen.tolist(), *rest))
    return rows


def test_gymnasium_accepts_it():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Box observation space (minimum|maximum) value is")
        warnings.filterwarnings("ignore", message=".*Not able to test alternative render modes.*")
        check_env(TextGame(ROOMS), skip_render_check=True)


def test_a_seed_is_a_game_of_the_split_test():
    env = TextGame(ROOMS)
    assert played(env, 7, [5, 0, 1]) == played(env, 7, [5, 0, 1])
    openings = []
    for seed in range(20):
        env.reset(seed=seed)
        openings.append(str(env.game.opening))
        assert compute_opening_split(env.game.opening) == "test"
    assert len({*openings}) > 10
    assert isinstance(env, gymnasium.Env)


def test_actions_are_said_and_what_is_read_becomes_the_observation():
    env = TextGame(ROOMS)
    reader = GameReader(16, 0.9)
    seen, info = env.reset(seed=3)
    assert info["text"].startswith("Find the lamp")
    assert seen.tolist() == reader.read(info["text"]).tolist()
    for turn in range(4):
        seen, reward, terminated, truncated, info = env.step(4)
        assert info["said"] == "open red door"
        assert info["text"].startswith(("There is no such door here.", "You have no red key."))
        assert seen.tolist() == reader.read(info["text"], "open red door").tolist()
        assert reward == pytest.approx(-0.02)
        assert (terminated, truncated) == (turn == 3, False), "the game is lost after 4 turns"


@pytest.mark.parametrize("reason", ["faults", "turns_cut"])
def test_a_game_that_would_have_gone_on_is_truncated(monkeypatch, reason):
    env = TextGame(ROOMS)
    env.reset(seed=3)
    monkeypatch.setattr(env.game.environment, "step", lambda action: Turn("", 0.0, True, {reason: 1.0}))
    _, reward, terminated, truncated, _ = env.step(0)
    assert (reward, terminated, truncated) == (0.0, False, True)


def test_what_is_written_is_what_plays(tmp_path):
    ROOMS.write(tmp_path)
    assert as_gymnasium.make(tmp_path).described == ROOMS


@pytest.mark.parametrize("terms", [1000, 20_000])
def test_code_with_a_long_expression_counts_as_its_text(tmp_path, terms):
    (tmp_path / "mine.py").write_text("x = " + "+".join(["1"] * terms))
    assert len(hash_game_code("environments/mine.py:Mine", tmp_path)) == 64


def test_the_code_of_a_game_of_the_users_counts(tmp_path):
    (tmp_path / "mine.py").write_text("a = 1")
    before = hash_game_code("environments/mine.py:Mine", tmp_path), hash_game_code("rooms", tmp_path)
    assert before[0] == hash_game_code("environments/mine.py:Mine", tmp_path / "mine.py") != before[1]
    for same in ("a = 1  # one", '"""About a."""\n\na = 1'):
        (tmp_path / "mine.py").write_text(same)
        assert hash_game_code("environments/mine.py:Mine", tmp_path) == before[0]
    (tmp_path / "mine.py").write_text("a = 2")
    assert hash_game_code("environments/mine.py:Mine", tmp_path) != before[0]
    assert hash_game_code("rooms", tmp_path) == hash_game_code("rooms", NONE) == before[1]
