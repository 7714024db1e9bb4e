"""Whether an environment is the one that a data set's metadata says it was recorded in."""

import json
import re

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces, wrappers
from minari.serialization import serialize_space

from tasks.common.errors import DataError
from tasks.offline.datasets import origin
from tasks.offline.datasets.origin import check_origin_and_list_missing, is_same_space
from tests.tasks import goal


def recorded(env):
    """What Minari writes of an environment."""
    spec = env.spec.to_json()
    env.close()
    both = {"observation_space": env.observation_space, "action_space": env.action_space}
    return {"env_spec": spec, **{name: serialize_space(space) for name, space in both.items()}}


def changed(metadata, **changes):
    """The same with another spec."""
    return {**metadata, "env_spec": json.dumps(json.loads(metadata["env_spec"]) | changes)}


def lake(**arguments):
    return recorded(gymnasium.make("FrozenLake-v1", **arguments))


CART = recorded(gymnasium.make("CartPole-v1"))
STACKED = recorded(wrappers.FrameStackObservation(gymnasium.make("CartPole-v1"), 2))
WATCHED = recorded(wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1", render_mode="rgb_array")))
SHORT = recorded(wrappers.TimeLimit(gymnasium.make("CartPole-v1"), 50))


@pytest.mark.parametrize(
    ("metadata", "environment"),
    [
        (CART, "CartPole-v1"),
        (CART, "gymnasium.envs:CartPole-v1"),
        (lake(), "FrozenLake-v1"),
        (lake(is_slippery=True), "FrozenLake-v1"),  # the default, said
        (lake(), "FrozenLake-v1 {is_slippery: true, render_mode: rgb_array}"),
        (lake(is_slippery=False), "FrozenLake-v1 {is_slippery: false}"),
        (lake(desc=["SF", "FG"]), 'FrozenLake-v1 {desc: ["SF", "FG"]}'),
        (lake(max_episode_steps=50), "FrozenLake-v1 {max_episode_steps: 50}"),
        (SHORT, "CartPole-v1 | TimeLimit {max_episode_steps: 50}"),
        (SHORT, "CartPole-v1 {max_episode_steps: 50}"),
        (STACKED, "CartPole-v1 | FrameStackObservation {stack_size: 2}"),
        (WATCHED, "CartPole-v1"),
        (recorded(gymnasium.make("CliffWalking-v1")), "CliffWalking-v1"),  # no limit but ours
        (recorded(gymnasium.make("Hopper-v5")), "Hopper-v5"),
        (recorded(gymnasium.make("Blackjack-v1")), "Blackjack-v1"),
        (recorded(gymnasium.make(goal.NAME)), goal.NAME),
        (
            recorded(wrappers.RescaleAction(gymnasium.make("Pendulum-v1"), -1, 1)),
            "Pendulum-v1 | RescaleAction {min_action: -1, max_action: 1}",
        ),
    ],
)
def test_the_same_environment(metadata, environment):
    assert check_origin_and_list_missing(metadata, environment) == []
    assert check_origin_and_list_missing(json.loads(json.dumps(metadata)), environment) == []


@pytest.mark.parametrize(
    ("metadata", "environment", "there", "more"),
    [
        (
            lake(is_slippery=False),
            "FrozenLake-v1",
            "FrozenLake-v1 {is_slippery: false}",
            "is_slippery: false there, true here",
        ),
        (lake(), "FrozenLake-v1 {is_slippery: false}", "FrozenLake-v1", "is_slippery: true there, false here"),
        (lake(map_name="8x8"), "FrozenLake-v1", 'FrozenLake-v1 {map_name: "8x8"}', "map_name: 8x8 there, 4x4 here"),
        (CART, "CartPole-v1 {max_episode_steps: 50}", "CartPole-v1", "max_episode_steps: 500 there, 50 here"),
        (SHORT, "CartPole-v1", "CartPole-v1 {max_episode_steps: 50}", "max_episode_steps: 50 there, 500 here"),
        (
            STACKED,
            "CartPole-v1",
            'CartPole-v1 | FrameStackObservation {padding_type: "reset", stack_size: 2}',
            'wrappers: FrameStackObservation {padding_type: "reset", stack_size: 2} there, nothing here',
        ),
        (
            STACKED,
            "CartPole-v1 | FrameStackObservation {stack_size: 3}",
            'CartPole-v1 | FrameStackObservation {padding_type: "reset", stack_size: 2}',
            "wrappers: .*stack_size: 2} there, .*stack_size: 3} here",
        ),
        (
            CART,
            "CartPole-v1 | ClipReward {max_reward: 1}",
            "CartPole-v1",
            "wrappers: nothing there, ClipReward .* here",
        ),
        (changed(CART, id="CartPole-v0"), "CartPole-v1", "CartPole-v0 {max_episode_steps: 500}", ""),
        (CART, "graph", "CartPole-v1", ""),
        (changed(CART, id="their/CartPole-v1"), "CartPole-v1", "their/CartPole-v1 {max_episode_steps: 500}", ""),
        (
            changed(CART, kwargs={"sutton_barto_reward": True}),
            "CartPole-v1",
            "CartPole-v1 {sutton_barto_reward: true}",
            "sutton_barto_reward: true there, false here",
        ),
        (
            changed(CART, kwargs={"unheard": 1}),
            "CartPole-v1",
            "CartPole-v1 {unheard: 1}",
            "unheard: 1 there, nothing here",
        ),
    ],
)
def test_another_one_is_refused_with_both_sides(metadata, environment, there, more):
    with pytest.raises(DataError) as refused:
        check_origin_and_list_missing(metadata, environment)
    line = str(refused.value)
    assert line.startswith(f"recorded in {there}, but environment is {environment}")
    assert re.search(f"\\({more}\\)$" if more else f"{re.escape(environment)}$", line)
    assert "\n" not in line


def test_what_it_was_recorded_in_is_written_as_an_id_that_is_taken():
    for metadata in (lake(is_slippery=False), STACKED, SHORT, lake(map_name="8x8")):
        assert check_origin_and_list_missing(metadata, origin.format_spec_as_id(json.loads(metadata["env_spec"]))) == []


def test_other_spaces_are_refused_with_both_sides():
    """As of a rescaled environment, whose wrapper cannot be written with arrays for arguments."""
    scaled = recorded(wrappers.RescaleAction(gymnasium.make("Pendulum-v1"), -1, 1)) | {"env_spec": None}
    with pytest.raises(
        DataError, match=r"^recorded with action_space Box\(-1.0, 1.0.*that of Pendulum-v1 is Box\(-2.0, 2.0"
    ):
        check_origin_and_list_missing(scaled, "Pendulum-v1")
    assert check_origin_and_list_missing(scaled, "Pendulum-v1 | RescaleAction {min_action: -1, max_action: 1}") == [
        "env_spec"
    ]
    with pytest.raises(
        DataError,
        match=r"^recorded with observation_space .*\(2, 4\), float32\), but that of CartPole-v1 is .*\(4,\), ",
    ):
        check_origin_and_list_missing(STACKED | {"env_spec": None}, "CartPole-v1")


def test_what_is_not_said_is_not_compared():
    assert check_origin_and_list_missing({}, "CartPole-v1") == ["env_spec", "observation_space", "action_space"]
    spec = {name: json.loads(text) for name, text in CART.items()}  # objects in the place of texts
    assert check_origin_and_list_missing(spec, "CartPole-v1") == []
    assert check_origin_and_list_missing(CART | {"env_spec": '{"id": "CartPole-v1"}'}, "CartPole-v1") == []


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({"env_spec": "[1]"}, "an object expected"),
        ({"env_spec": "{}"}, "env_spec: an id expected"),
        ({"action_space": '{"type": "Wonder"}'}, "action_space: a space expected, got"),
        ({"observation_space": '{"type": "Box"}'}, "observation_space: a space expected, got"),
    ],
)
def test_what_is_no_metadata_is_told(metadata, told):
    with pytest.raises(ValueError, match=told):
        check_origin_and_list_missing(metadata, "CartPole-v1")


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (spaces.Box(-1, 1, (2,), np.float32), spaces.Box(-1, 1, (2,), np.float64), True),
        (spaces.Box(-1, 1, (2,)), spaces.Box(-1, 2, (2,)), False),
        (spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (1, 2)), False),
        (
            spaces.Box(-np.inf, np.inf, (2,)),
            spaces.Box(-np.finfo(np.float32).max, np.finfo(np.float32).max, (2,)),
            True,
        ),
        (spaces.Box(0, 255, (2,), np.uint8), spaces.Box(0, 1, (2,)), False),
        (spaces.Discrete(3), spaces.Discrete(3, start=1), False),
        (spaces.Discrete(3), spaces.Discrete(4), False),
        (spaces.Discrete(3), spaces.Box(0, 2, (1,)), False),
        (spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete([2, 3], start=[0, 1]), False),
        (spaces.MultiBinary(3), spaces.MultiBinary(4), False),
        (
            spaces.Dict(a=spaces.Discrete(2), b=spaces.Discrete(3)),
            spaces.Dict(b=spaces.Discrete(3), a=spaces.Discrete(2)),
            True,
        ),
        (spaces.Dict(a=spaces.Discrete(2)), spaces.Dict(c=spaces.Discrete(2)), False),
        (spaces.Dict(a=spaces.Discrete(2)), spaces.Dict(a=spaces.Discrete(3)), False),
        (spaces.Tuple([spaces.Discrete(2)] * 2), spaces.Tuple([spaces.Discrete(2)] * 3), False),
    ],
)
def test_spaces_by_hand(one, other, equal):
    assert is_same_space(one, other) == is_same_space(other, one) == equal
    assert is_same_space(one, one)
