"""Arithmetic with a tool."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.agents.environments.calculator import Calculator
from tasks.agents.environments.protocol import SettingError


@given(st.integers(0, 10**6), st.integers(1, 6), st.booleans(), st.floats(0, 0.5))
def test_the_best_play_is_right_and_costs_its_call(seed, hardest, tool, cost):
    task = Calculator({"hardest": hardest, "tool": tool, "call_cost": cost})
    [asked] = task.reset(seed)
    rewards, done = [], False
    while not done:
        turn = task.step(task.best_action())
        rewards.append(turn.reward)
        done = turn.done
    assert rewards == ([-cost, 1.0] if tool else [1.0])
    first, sign, second = asked["content"].removeprefix("What is ").removesuffix("?").split()
    assert task.result == {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}[sign](int(first), int(second))


def test_what_is_said_is_heard_exactly():
    task = Calculator({"turns": 10})
    task.reset(1)
    assert task.step("calculate 12 * 12").observation == "144"
    assert task.step("calculate -3-4").observation == "-7"
    for other in ("calculate 2 ** 9", "calculate 1 + 1; print()", "answer", "answer 1.5", "calculate 1", ""):
        turn = task.step(other)
        assert (turn.observation, turn.reward, turn.done) == ("I do not understand that.", 0.0, False)
    wrong = task.step(f"answer {task.result + 1}")
    assert (wrong.reward, wrong.done, wrong.counted) == (0.0, True, {"right": 0.0})


def test_without_the_tool_a_call_is_not_understood_and_turns_end():
    task = Calculator({"tool": False, "turns": 2})
    task.reset(1)
    turns = [task.step("calculate 1 + 1") for _ in range(2)]
    assert [(turn.observation, turn.done) for turn in turns] == [
        ("I do not understand that.", done) for done in (False, True)
    ]


def test_wrong_settings_are_one_line():
    with pytest.raises(SettingError, match="hardest: expected a number from 3 to 6, got 2"):
        Calculator({"easiest": 3, "hardest": 2})
