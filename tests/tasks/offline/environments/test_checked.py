"""What an environment returns is checked, whatever it is; and every episode has an end."""

import time
from contextlib import suppress
from decimal import Decimal

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from tasks.common.errors import DataError
from tasks.offline.environments import simulators
from tasks.offline.environments.checked import Checked, find_observation_fault
from tasks.offline.environments.deadline import Alarm, Overdue
from tasks.offline.environments.rollouts import Forgetful, play_seeded_episodes
from tasks.offline.environments.simulators import LONGEST, Plain

SEEN = np.zeros(2, np.float32)
FINE = (SEEN, 1.0, False, False, {})


class Told(gymnasium.Env):
    """An environment that returns what it is told to."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, step=FINE, reset=(SEEN, {}), render_mode=None):
        self.answers = {"step": step, "reset": reset}

    def answer(self, name):
        answer = self.answers[name]
        return answer() if callable(answer) else answer

    def reset(self, *, seed=None, options=None):
        return self.answer("reset")

    def step(self, action):
        return self.answer("step")


def checked(limit=LONGEST, **answers):
    return Checked(Told(**answers), "mine:Told-v0", limit)


def ending(error):
    def answer():
        raise error

    return answer


STEPS = {
    "four values": ((SEEN, 1.0, False, {}), r"expected \(observation, reward, terminated, truncated, info\), got \("),
    "six values": ((*FINE, 1), r"expected \(observation, reward, terminated, truncated, info\), got \("),
    "none": (None, r"expected \(observation, reward, .* got None \(NoneType\)"),
    "no reward": ((SEEN, None, False, False, {}), r"the reward: expected one finite number, got None \(NoneType\)"),
    "nan": ((SEEN, float("nan"), False, False, {}), r"the reward: expected one finite number, got nan \(float\)"),
    "infinite": ((SEEN, -np.inf, False, False, {}), r"the reward: expected one finite number, got -inf \(float\)"),
    "vast": ((SEEN, 1e39, False, False, {}), r"the reward: expected one finite number, got 1e\+39 \(float\)"),
    "text": ((SEEN, "1.0", False, False, {}), r"the reward: expected one finite number, got '1.0' \(str\)"),
    "two rewards": ((SEEN, np.ones(2), False, False, {}), r"the reward: expected one finite number, got array"),
    "complex": ((SEEN, 1j, False, False, {}), r"the reward: expected one finite number, got 1j"),
    "undecided": ((SEEN, 1.0, None, False, {}), r"terminated: expected true or false, got None \(NoneType\)"),
    "two": ((SEEN, 1.0, False, 2, {}), r"truncated: expected true or false, got 2 \(int\)"),
    "no observation": ((None, 1.0, False, False, {}), r"the observation: expected numbers of shape \(2,\), got None"),
    "too long": (
        (np.zeros(3), 1.0, False, False, {}),
        r"expected numbers of shape \(2,\), got float64 of shape \(3,\)",
    ),
    "a column": ((np.zeros((2, 1)), 1.0, False, False, {}), r"of shape \(2,\), got float64 of shape \(2, 1\)"),
    "ragged": (
        ([[1.0], [1.0, 2.0]], 1.0, False, False, {}),
        r"the observation: expected numbers of shape \(2,\), got \[",
    ),
    "words": (
        (np.array(["1", "2"]), 1.0, False, False, {}),
        r"the observation: expected numbers of shape \(2,\), got <U1",
    ),
    "nan seen": ((np.array([0.0, np.nan]), 1.0, False, False, {}), r"expected finite numbers, got nan at \[1\]"),
    "vast seen": ((np.array([1e39, 0.0]), 1.0, False, False, {}), r"expected finite numbers, got 1e\+39 at \[0\]"),
    "raises": (ending(RuntimeError("simulation\ndiverged")), r"RuntimeError: simulation diverged$"),
    "raises no word": (ending(AssertionError()), r"AssertionError$"),
    "exits": (ending(SystemExit(3)), r"SystemExit: 3$"),
}


@pytest.mark.parametrize("kind", STEPS)
def test_a_wrong_step_is_one_line_with_environment_seed_and_step(kind):
    answer, line = STEPS[kind]
    env = checked()
    env.reset(seed=7)
    env.step(0)
    env.env.answers["step"] = answer
    with pytest.raises(DataError, match=rf"^environment mine:Told-v0: seed 7, step 2: .*{line}") as stopped:
        env.step(0)
    assert "\n" not in str(stopped.value)


RESETS = {
    "an observation alone": (SEEN, r"expected a pair \(observation, info\), got array"),
    "a list": ([SEEN, {}], r"expected a pair \(observation, info\), got \["),
    "three": ((SEEN, {}, 1), r"expected a pair"),
    "nan": ((np.full(2, np.nan), {}), r"the observation: expected finite numbers, got nan at \[0\]"),
    "the other way round": (({}, SEEN), r"the observation: expected numbers of shape \(2,\), got \{\} \(dict\)"),
    "raises": (ending(KeyError("map")), r"KeyError: 'map'$"),
}


@pytest.mark.parametrize("kind", RESETS)
def test_a_wrong_reset_is_one_line(kind):
    answer, line = RESETS[kind]
    with pytest.raises(DataError, match=rf"^environment mine:Told-v0: seed 3, reset: {line}"):
        checked(reset=answer).reset(seed=3)


def test_an_episode_without_a_seed_of_its_own_is_counted_from_the_last_one():
    env = checked()
    env.reset(seed=3)
    env.reset()
    env.reset()
    env.env.answers["step"] = None
    with pytest.raises(DataError, match=r"^environment mine:Told-v0: episode 3 from seed 3 on, step 1: "):
        env.step(0)


@pytest.mark.parametrize(
    "reward", [2, 2.0, np.float32(2), np.array(2.0), np.array([2.0]), np.array([[2]]), torch.tensor(2.0), Decimal(2)]
)
def test_a_number_is_a_number(reward):
    _, paid, *_ = checked(step=(SEEN, reward, False, False, {})).step(0)
    assert (paid, type(paid)) == (2.0, float)


@pytest.mark.parametrize("flag", [True, 1, 1.0, np.True_, np.array(True), np.array([1]), torch.tensor(True)])
def test_a_flag_is_a_flag(flag):
    assert checked(step=(SEEN, 0.0, flag, False, None)).step(0)[2:4] == (True, False)
    assert checked(step=(SEEN, 0.0, False, flag, "no dictionary")).step(0)[2:4] == (False, True)


DISCRETE = spaces.Discrete(3, start=5)
DICT = spaces.Dict({"at": spaces.Box(0, 1, (1,)), "tool": DISCRETE})
TUPLE = spaces.Tuple([DISCRETE, spaces.MultiBinary((2, 2))])


@pytest.mark.parametrize(
    ("space", "seen", "line"),
    [
        (DISCRETE, 7, None),
        (DISCRETE, np.array(5), None),
        (DISCRETE, 8, "x: expected one of Discrete(3, start=5), got 8 (int)"),
        (DISCRETE, None, "x: expected one of Discrete(3, start=5), got None (NoneType)"),
        (DICT, {"at": [3.0], "tool": 6, "more": "not declared"}, None),
        (DICT, {"at": [3.0]}, "x: expected a dictionary of at, tool, got {'at': [3.0]} (dict)"),
        (DICT, {"at": [np.inf], "tool": 6}, "x: at: expected finite numbers, got inf at [0]"),
        (DICT, {"at": [0.0], "tool": 9}, "x: tool: expected one of Discrete(3, start=5), got 9 (int)"),
        (TUPLE, (5, np.ones((2, 2), np.int8)), None),
        (TUPLE, (5, [[1, 0], [0, 1]]), None),
        (TUPLE, (5,), "x: expected a tuple of 2, got (5,) (tuple)"),
        (TUPLE, (5, np.full((2, 2), 2)), "x: part 1: expected one of MultiBinary((2, 2)), got array"),
        (spaces.Box(0, 255, (2, 2), np.uint8), [[0, 1], [2, 300]], None),
    ],
)
def test_an_observation_fits_its_space(space, seen, line):
    wrong = find_observation_fault(space, seen, "x")
    assert wrong is None if line is None else wrong.startswith(line)


def test_an_episode_is_truncated_whatever_is_inside():
    """A wrapper that begins anew by itself hides the limit inside."""
    env = checked(limit=3)
    for _ in range(2):
        env.reset(seed=0)
        assert [env.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]
    env = checked(limit=1, step=(SEEN, 0.0, True, False, {}))
    env.reset(seed=0)
    assert env.step(0)[2:4] == (True, False), "an end at the limit is an end"


def test_an_episode_that_takes_too_long_ends_with_its_number_of_steps():
    env = checked()
    env.seconds = 1e-9
    with pytest.raises(
        DataError, match=r"seed 5, reset: the episode took longer than .* expected at most 1e-09 s, or an"
    ):
        env.reset(seed=5)
    env.seconds = 1e9
    env.reset(seed=5)
    env.step(0)
    env.spent = 2e9  # as if the last step had taken so long
    with pytest.raises(DataError, match=r"seed 5, step 2: the episode took longer than 2e\+09 s in the environment"):
        env.step(0)


def test_an_environment_may_say_how_long_it_takes():
    env = Told()
    env.max_seconds = 5
    assert Checked(env, "mine", LONGEST).seconds == 5.0
    assert checked().seconds == 600.0
    env.max_seconds = None
    assert Checked(env, "mine", LONGEST).seconds == 600.0
    for wrong in ("60", 0, float("nan"), True):
        env.max_seconds = wrong
        with pytest.raises(DataError, match=r"^environment mine: max_seconds: expected a number above 0, got "):
            Checked(env, "mine", LONGEST)


def test_a_step_that_waits_for_ever_is_interrupted():
    def wait():
        while True:
            with suppress(Exception):  # an Overdue is none
                time.sleep(3600)

    env = checked(step=wait)
    env.seconds = 0.05
    env.reset(seed=1)
    env.spent = 0.0
    with pytest.raises(DataError, match=r"seed 1, step 1: the episode took longer than 0\.05 s"):
        env.step(0)
    assert env.alarm.due == float("inf")


def test_what_has_ended_in_time_is_not_interrupted():
    alarm = Alarm()
    alarm._interrupt(14, None)
    alarm.due = time.monotonic() - 1.0
    with pytest.raises(Overdue):
        alarm._interrupt(14, None)


@pytest.fixture
def registered(monkeypatch):
    def register(limit=None, **answers):
        spec = gymnasium.envs.registration.EnvSpec(
            "Told-v0", entry_point=lambda **_: Told(**answers), max_episode_steps=limit
        )
        monkeypatch.setitem(gymnasium.registry, "Told-v0", spec)

    return register


class Still:
    """A policy that always does the same."""

    def act(self, observations):
        return torch.zeros(len(observations), dtype=torch.long)


def test_a_policy_that_always_does_the_same_ends(registered):
    registered()
    played = play_seeded_episodes("Told-v0", Forgetful(Still()), 1, seed=0)
    assert (played.lengths.tolist(), played.truncated.tolist(), played.cut.tolist()) == ([LONGEST], [True], [True])


def test_a_limit_that_the_environment_or_its_user_sets_is_no_want_of_one(registered):
    registered()
    played = play_seeded_episodes("Told-v0", Forgetful(Still()), 1, seed=0, limit=LONGEST)
    assert (played.truncated.tolist(), played.cut.tolist()) == ([True], [False])
    assert not simulators.make_offline_environment("CartPole-v1").unlimited
    registered(limit=LONGEST)
    assert not simulators.make_offline_environment("Told-v0").unlimited


@pytest.mark.parametrize(("steps", "limit"), [(None, LONGEST), (4, 4), ("many", LONGEST), (float("inf"), float("inf"))])
def test_an_environment_that_a_folder_holds_may_say_its_limit(steps, limit, tmp_path, monkeypatch):
    (tmp_path / "environment.json").write_text("{}")
    monkeypatch.setattr(simulators.saved_environments, "make_saved_environment", lambda environment, folder: env)
    env = Told()
    env.max_steps = steps
    assert simulators.make_offline_environment(f"module:{tmp_path}").env.limit == limit
    assert simulators.make_offline_environment(f"module:{tmp_path}").unlimited == (limit == LONGEST)
    assert simulators.make_offline_environment(f"module:{tmp_path}", limit=7).env.limit == 7


def test_where_it_is_played_a_fault_names_the_episode(registered):
    registered(step=(SEEN, None, False, False, {}))
    with pytest.raises(DataError, match=r"^environment Told-v0: seed 40, step 1: the reward: "):
        play_seeded_episodes("Told-v0", Forgetful(Still()), 2, seed=40)


def boxed(low, high, kind):
    env = Told(step=lambda: (np.zeros(2), 0.0, False, False, {}))
    env.action_space = spaces.Box(np.array(low, kind), np.array(high, kind), dtype=kind)
    env.step = lambda action: setattr(env, "action", action) or FINE
    return env, Plain(env)


def test_a_box_of_whole_numbers_is_played_with_whole_numbers():
    """0 to 5: the middle is 2.5, and -0.5 means 1.25, which is nearest to 1."""
    env, plain = boxed([0, 0], [5, 5], np.int64)
    for action, own in (([-1.0, 1.0], [0, 5]), ([-0.5, 0.42], [1, 4]), ([9.0, -9.0], [5, 0])):
        plain.step(np.array(action, np.float32))
        assert (env.action.tolist(), env.action.dtype) == (own, np.int64)
    recorded = np.array([[0, 5], [1, 4], [2, 3]])
    for scaled, own in zip(plain.scale_recorded_actions(recorded), recorded, strict=True):
        plain.step(scaled)
        assert env.action.tolist() == own.tolist(), "a recorded action is played as it was"
    assert plain.find_first_refused_action(recorded) is None
    assert plain.find_first_refused_action(np.array([[0, 0.5]])) == ((0, 1), "a whole number within [0, 5]")
    assert plain.find_first_refused_action(np.array([[6, 0]])) == ((0, 0), "a whole number within [0, 5]")


@pytest.mark.parametrize(("low", "high", "kind"), [(100, 200, np.uint8), (-128, 127, np.int8)])
def test_bytes_do_not_overflow(low, high, kind):
    env, plain = boxed([low], [high], kind)
    for action, own in ((-1.0, low), (1.0, high)):
        plain.step(np.array([action], np.float32))
        assert env.action.tolist() == [own]
