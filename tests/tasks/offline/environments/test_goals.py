"""Environments with goals: what they show and pay, their optimum, and where goals stand in the flat observation."""

from collections import OrderedDict

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from tasks.common.errors import DataError
from tasks.offline.environments import goals, simulators
from tasks.offline.environments.goals import (
    BITS,
    DEGREE,
    NEAR,
    NODES,
    STRIDE,
    SUCCESSORS,
    BitFlipEnv,
    GoalGraphEnv,
    ReachEnv,
)


@pytest.mark.parametrize("kind", [BitFlipEnv, GoalGraphEnv, ReachEnv])
def test_gymnasium_accepts_it(kind):
    check_env(kind(), skip_render_check=True)


def test_bits_are_flipped_until_they_are_those_that_were_asked():
    env = BitFlipEnv()
    seen, _ = env.reset(seed=0)
    wrong = np.flatnonzero(seen["observation"] != seen["desired_goal"])
    for number, bit in enumerate(wrong, 1):
        seen, reward, terminated, truncated, _ = env.step(int(bit))
        assert (reward, terminated, truncated) == ((0.0, True, False) if number == len(wrong) else (-1.0, False, False))
    assert (seen["achieved_goal"] == seen["desired_goal"]).all()


@pytest.mark.parametrize(
    ("kind", "limit"), [(BitFlipEnv, BITS), (GoalGraphEnv, goals.LONGEST_WALK), (ReachEnv, goals.PUSHES)]
)
def test_an_episode_is_cut_off(kind, limit):
    env, steps = kind(), 0
    env.reset(seed=3)
    env.goal = np.full_like(env.goal, 2)  # nowhere
    truncated = False
    while not truncated:
        _, reward, terminated, truncated, _ = env.step(0 if kind is not ReachEnv else np.zeros(2))
        steps += 1
        assert (reward, terminated) == (-1.0, False)
    assert steps == limit


def played(kind, policy, episodes):
    """The mean return."""
    env, totals = kind(), []
    for seed in range(episodes):
        seen, ended, total = env.reset(seed=seed)[0], False, 0.0
        while not ended:
            seen, reward, terminated, truncated, _ = env.step(policy(seen))
            ended, total = terminated or truncated, total + reward
        totals.append(total)
    return np.mean(totals)


def test_the_optima_are_reached_by_the_best_play():
    def flipping(seen):
        return int(np.flatnonzero(seen["observation"] != seen["desired_goal"])[0])

    def walking(seen):
        node, goal = seen["observation"].argmax(), int(seen["desired_goal"].argmax())
        return int(distances[goal][SUCCESSORS[node]].argmin())

    distances = [goals.graph.Graph(SUCCESSORS, goal).distances for goal in range(NODES)]

    def pushing(seen):
        left = seen["desired_goal"] - seen["observation"]
        return np.clip(left / STRIDE, -1, 1)

    assert played(ReachEnv, pushing, 1000) == pytest.approx(simulators.OPTIMA["reach"], abs=0.3)
    assert played(BitFlipEnv, flipping, 1000) == pytest.approx(simulators.OPTIMA["bit-flip"], abs=0.15)
    assert played(GoalGraphEnv, walking, 1000) == pytest.approx(simulators.OPTIMA["goal-graph"], abs=0.15)


@pytest.mark.parametrize("environment", ["bit-flip", "goal-graph", "reach"])
def test_where_goals_stand_and_what_they_pay(environment):
    found, scene = simulators.build_environment_goals(environment), simulators.make_offline_environment(environment)
    rows = [scene.reset(seed=seed)[0] for seed in range(5)]
    for row in rows:
        own = scene.unwrapped._observation()
        scene.reset(seed=0)
        assert row[found.achieved].shape == row[found.desired].shape == own["desired_goal"].shape
    seen = torch.from_numpy(np.stack(rows))
    achieved, desired = seen[:, found.achieved], seen[:, found.desired]
    assert found.reward(achieved, desired).tolist() == [-1.0] * 5
    assert found.reward(achieved, achieved).tolist() == [0.0] * 5
    assert found.terminated(achieved, achieved).all()
    assert not found.terminated(achieved, desired).any()


def test_the_row_names_the_goal_that_the_environment_has():
    found, scene = simulators.build_environment_goals("bit-flip"), simulators.make_offline_environment("bit-flip")
    row, _ = scene.reset(seed=7)
    assert (row[found.desired] == scene.unwrapped.goal).all()
    assert (row[found.achieved] == scene.unwrapped.state).all()


def test_every_node_can_be_reached_in_time():
    assert SUCCESSORS.shape == (NODES, DEGREE)
    assert all(len({node, *row}) == DEGREE + 1 for node, row in enumerate(SUCCESSORS)), "to distinct others"
    apart = [goals.graph.Graph(SUCCESSORS, goal).distances.max() for goal in range(NODES)]
    assert max(apart) <= goals.LONGEST_WALK


def test_a_point_is_pushed_and_stopped_by_walls():
    env = ReachEnv()
    env.reset(seed=0)
    env.state, env.goal = np.array([0.0, 0.95], np.float32), np.array([0.1, 1.0], np.float32)
    seen, reward, terminated, _, _ = env.step([0.5, 9.0])
    assert seen["observation"].tolist() == pytest.approx([0.05, 1.0])
    assert (reward, terminated) == (0.0, True), f"no further than {NEAR}"


def test_an_environment_without_goals_is_named():
    with pytest.raises(
        DataError, match=r"^environment CartPole-v1: relabelling goals needs [^\n]*achieved_goal[^\n]*$"
    ):
        simulators.build_environment_goals("CartPole-v1")


class Reach(gymnasium.Env):
    """As Gymnasium-Robotics' do it: a plain False says that no goal ends an episode.

    Its parts stand in an order of their own.
    """

    def __init__(self, at_once=True):
        box = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        inner = [
            ("observation", gymnasium.spaces.Box(-1, 1, (3,), np.float32)),
            ("desired_goal", box),
            ("achieved_goal", box),
        ]
        self.observation_space, self.action_space = (
            gymnasium.spaces.Dict(OrderedDict(inner)),
            gymnasium.spaces.Discrete(2),
        )
        self.at_once = at_once

    def compute_reward(self, achieved_goal, desired_goal, info):
        far = np.linalg.norm(achieved_goal - desired_goal, axis=-1 if self.at_once else None) > 0.05
        return -np.float32(far) if not self.at_once else -far.astype(np.float32)

    def compute_terminated(self, achieved_goal, desired_goal, info):
        return False


class Demanding(Reach):
    def compute_reward(self, achieved_goal, desired_goal, info):
        return info["is_success"]


@pytest.fixture
def registered():
    gymnasium.register("Anything-v0", Reach)
    gymnasium.register("AnythingByOne-v0", Reach, kwargs={"at_once": False})
    gymnasium.register("Demanding-v0", Demanding)
    yield
    for name in ("Anything-v0", "AnythingByOne-v0", "Demanding-v0"):
        gymnasium.registry.pop(name)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("environment", ["Anything-v0", "AnythingByOne-v0"])
def test_another_package_s_environment_with_goals(environment):
    found = simulators.build_environment_goals(environment)
    assert (found.achieved, found.desired) == (slice(5, 7), slice(3, 5)), "as Gymnasium flattens them"
    desired = torch.tensor([[0.0, 0.0], [0.04, 0.0], [0.1, 0.0]])
    assert found.reward(torch.zeros(3, 2), desired).tolist() == [0, 0, -1]
    assert found.terminated(torch.zeros(3, 2), desired).tolist() == [False] * 3


@pytest.mark.usefixtures("registered")
def test_a_reward_that_needs_more_than_goals_is_named():
    found = simulators.build_environment_goals("Demanding-v0")
    with pytest.raises(
        DataError, match=r"^environment Demanding-v0: compute_reward of other goals: KeyError: 'is_success'$"
    ):
        found.reward(torch.zeros(3, 2), torch.zeros(3, 2))


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(("reward", "shown"), [(float("nan"), "nan"), (float("-inf"), "-inf")])
def test_a_reward_of_other_goals_is_a_finite_number(monkeypatch, reward, shown):
    monkeypatch.setattr(Demanding, "compute_reward", lambda self, achieved_goal, desired_goal, info: reward)
    found = simulators.build_environment_goals("Demanding-v0")
    with pytest.raises(
        DataError, match=rf"compute_reward of other goals: ValueError: expected finite numbers, got {shown}$"
    ):
        found.reward(torch.zeros(3, 2), torch.zeros(3, 2))
