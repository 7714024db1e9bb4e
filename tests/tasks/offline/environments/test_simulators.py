import sys
from importlib.metadata import EntryPoint

import gymnasium
import numpy as np
import pytest

from tasks.algorithms.offline.transition_tensors import Spaces
from tasks.common.errors import StageError
from tasks.offline.environments import simulators
from tasks.offline.environments.discrete import GRAPH, WALK
from tasks.offline.environments.simulators import (
    LONGEST,
    OPTIMA,
    get_policy_spaces,
    make_offline_environment,
)
from tests.tasks import goal


@pytest.mark.parametrize(
    ("environment", "spaces"),
    [
        ("graph", Spaces(20, 3, discrete=True)),
        ("key-to-door", Spaces(35, 4, discrete=True)),
        ("CartPole-v1", Spaces(4, 2, discrete=True)),
        ("LunarLander-v3", Spaces(8, 4, discrete=True)),
        ("Hopper-v5", Spaces(11, 3, discrete=False)),
        ("FrozenLake-v1", Spaces(16, 4, discrete=True)),  # a number, seen one-hot
        ("Pendulum-v1", Spaces(3, 1, discrete=False)),
    ],
)
def test_all_have_one_face(environment, spaces, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert get_policy_spaces(environment) == spaces
    env = make_offline_environment(environment)
    seen, _ = env.reset(seed=1)
    action = 0 if spaces.discrete else np.zeros(spaces.action, dtype=np.float32)
    after, reward, terminated, truncated, _ = env.step(action)
    env.close()
    assert seen.shape == after.shape == (spaces.observation,)
    assert seen.dtype == after.dtype == np.float32
    assert type(reward) is float
    assert type(terminated) is type(truncated) is bool
    assert not list(tmp_path.iterdir()), "nothing is written where it runs"


@pytest.mark.parametrize("environment", ["graph", "key-to-door", "LunarLander-v3", "Hopper-v5"])
def test_same_seed_same_episode(environment):
    def played(seed):
        env, seen = make_offline_environment(environment), []
        generator = np.random.default_rng(0)
        seen.append(env.reset(seed=seed)[0])
        for _ in range(8):
            spaces = get_policy_spaces(environment)
            action = generator.integers(spaces.action) if spaces.discrete else generator.uniform(-1, 1, spaces.action)
            seen.append(env.step(action)[0])
        env.close()
        return np.stack(seen)

    assert (played(3) == played(3)).all()
    assert (played(3) != played(4)).any()


def test_actions_within_the_box_mean_the_environments_own():
    """Pendulum takes -2 to 2: 0.5 is 1, and beyond 1 is clipped."""
    ours, its = make_offline_environment("Pendulum-v1"), gymnasium.make("Pendulum-v1")
    for action, own in ((0.5, 1.0), (-1.0, -2.0), (7.0, 2.0)):
        ours.reset(seed=0)
        its.reset(seed=0)
        expected = its.step(np.array([own], dtype=np.float32))
        np.testing.assert_allclose(ours.step(np.array([action]))[0], expected[0], rtol=1e-6)
    own = np.array([[2.0], [-1.0], [2.1]])
    assert ours.scale_recorded_actions(own)[:, 0].tolist() == [1, -0.5, 1]


def test_numbers_that_do_not_begin_at_0():
    class Shifted(gymnasium.Env):
        observation_space = gymnasium.spaces.Discrete(3, start=5)
        action_space = gymnasium.spaces.Discrete(2, start=10)

        def step(self, action):
            return action - 4, 0.0, False, False, {}

    plain = simulators.Plain(Shifted())
    assert plain.step(1)[0].tolist() == [0, 0, 1]
    assert plain.scale_recorded_actions(np.array([10, 11])).tolist() == [0, 1]
    assert plain.flatten_recorded_observations({"observations": np.array([5, 7])}).tolist() == [[1, 0, 0], [0, 0, 1]]


def test_graph_by_hand():
    """Along the edges of GRAPH, -1 a step; at the goal it is terminated, after WALK steps truncated."""
    env = make_offline_environment("graph")
    for start in GRAPH.starts:
        node, total = int(start), 0.0
        seen, _ = env.reset(options={"start": start})
        while True:
            assert np.flatnonzero(seen).tolist() == [node]
            edge = GRAPH.distances[GRAPH.successors[node]].argmin()
            node = int(GRAPH.successors[node, edge])
            seen, reward, terminated, truncated, _ = env.step(edge)
            total += reward
            assert not truncated
            if terminated:
                break
        assert node == GRAPH.goal
        assert total == -GRAPH.distances[start]


def test_a_walk_that_never_arrives_is_truncated():
    env = make_offline_environment("graph")
    seen, _ = env.reset(seed=0)
    for step in range(1, WALK + 1):
        node = int(seen.argmax())
        away = next(edge for edge, after in enumerate(GRAPH.successors[node]) if after != GRAPH.goal)
        seen, reward, terminated, truncated, _ = env.step(away)
        assert (reward, terminated, truncated) == (-1.0, False, step == WALK)


def test_seeds_in_a_row_begin_everywhere_once():
    env = make_offline_environment("graph")
    starts = [int(env.reset(seed=seed)[0].argmax()) for seed in range(100, 100 + len(GRAPH.starts))]
    assert sorted(starts) == GRAPH.starts.tolist()
    env.reset(seed=1)
    again = {int(env.reset()[0].argmax()) for _ in range(200)}
    assert again == set(GRAPH.starts.tolist()), "and without a seed by chance"


def test_optima():
    assert OPTIMA["graph"] == -GRAPH.distances[GRAPH.starts].mean()
    env = make_offline_environment("key-to-door")
    for seed in range(20):  # knowing all: to the key, wait, to the door
        env.reset(seed=seed)
        total, ended = 0.0, False
        while not ended:
            state = env.unwrapped.state
            goal = state.door if state.room == 2 else state.key
            (row, column), (wanted_row, wanted_column) = divmod(state.cell, 4), divmod(goal, 4)
            vertical = 1 if wanted_row > row else 0
            action = vertical if wanted_row != row else 3 if wanted_column > column else 2
            _, reward, ended, _, _ = env.step(action)
            total += reward
        assert total == OPTIMA["key-to-door"]


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ("LunarLandr-v3", "environment LunarLandr-v3: unknown; near names: LunarLander-v3"),
        ("grph", "near names: graph"),
        ("LunarLander-v9", "near names: LunarLander-v3"),
        ("??", "Gymnasium's names and our own: graph, key-to-door"),
    ],
)
def test_an_unknown_environment_is_one_clear_line(environment, told):
    with pytest.raises(StageError, match="environment ") as stopped:
        make_offline_environment(environment)
    assert told in str(stopped.value)
    assert "\n" not in str(stopped.value)


def test_actions_without_bounds_are_not_supported(monkeypatch):
    class Unbounded(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 1, (2,))
        action_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))

        def __init__(self, render_mode=None):
            pass

    spec = gymnasium.envs.registration.EnvSpec("Unbounded-v0", entry_point=Unbounded)
    monkeypatch.setitem(gymnasium.registry, "Unbounded-v0", spec)
    with pytest.raises(StageError, match=r"environment Unbounded-v0: actions of Box\(-inf, inf.* are not supported"):
        make_offline_environment("Unbounded-v0")


@pytest.mark.parametrize("environment", ["Hopper-v2", "GymV21Environment-v0"])
def test_an_environment_that_wants_what_is_not_here_is_one_clear_line(environment, monkeypatch):
    monkeypatch.setattr(gymnasium.logger, "deprecation", lambda message: None)
    with pytest.raises(StageError, match=f"^environment {environment}: cannot be made: ") as stopped:
        make_offline_environment(environment)
    assert "\n" not in str(stopped.value)


def test_observations_without_a_fixed_length_are_not_supported(monkeypatch):
    class Growing(gymnasium.Env):
        observation_space = gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(3))
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, render_mode=None):
            pass

    spec = gymnasium.envs.registration.EnvSpec("Growing-v0", entry_point=Growing)
    monkeypatch.setitem(gymnasium.registry, "Growing-v0", spec)
    with pytest.raises(StageError, match=r"environment Growing-v0: observations of Sequence.* are not supported"):
        make_offline_environment("Growing-v0")


def test_what_is_not_finite_is_not_clipped():
    """Infinity is no valid action in Pendulum, though a very large number is clipped to 2."""
    actions = make_offline_environment("Pendulum-v1").scale_recorded_actions(
        np.array([[np.inf], [-np.inf], [np.nan], [9.0]])
    )
    np.testing.assert_array_equal(actions[:, 0], [np.inf, -np.inf, np.nan, 1])


@pytest.mark.parametrize(
    ("environment", "action", "steps"), [("CliffWalking-v1", 3, LONGEST), ("MountainCar-v0", 1, 200)]
)
def test_who_stays_put_is_truncated_in_the_end(environment, action, steps):
    """Gymnasium has no step limit for CliffWalking; where it has one, that limit holds."""
    env = make_offline_environment(environment)
    env.reset(seed=0)
    ends = [env.step(action)[2:4] for _ in range(steps)]
    assert ends == [(False, False)] * (steps - 1) + [(False, True)]


def test_parts_of_an_observation_are_one_row_in_gymnasiums_order():
    """Sorted by name: achieved goal, desired goal, observation, panel, tool; the tool one-hot."""
    env, its = make_offline_environment(goal.NAME), gymnasium.make(goal.NAME)
    rows = [(env.reset(seed=4)[0], its.reset(seed=4)[0])]
    for _ in range(3):
        rows.append((env.step(np.array([0.5]))[0], its.step(np.array([1.0], dtype=np.float32))[0]))
    for ours, theirs in rows:
        np.testing.assert_allclose(ours, gymnasium.spaces.flatten(its.observation_space, theirs), rtol=1e-6)
    at, desired, observed, panel, tool = np.split(rows[2][0], [1, 2, 4, 8])
    assert (at[0], desired[0]) == (2.0, pytest.approx(rows[0][1]["desired_goal"][0]))
    assert (observed.tolist(), panel.tolist(), tool.tolist()) == ([2.0, 2.0], [0, 1, 0.25, -0.5], [0, 0, 1])
    assert get_policy_spaces(goal.NAME) == Spaces(11, 1, discrete=False)


PACKAGE = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
def register():
    gymnasium.register("{name}", entry_point=CartPoleEnv, max_episode_steps=7)
{now}
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A foreign package on Python's path that registers an environment on import, or by its entry point."""

    def made(module, name, now="register()"):
        (tmp_path / f"{module}.py").write_text(PACKAGE.format(name=name, now=now))
        return f"{module}:{name}"

    monkeypatch.syspath_prepend(tmp_path)
    before = dict(gymnasium.registry)
    simulators._register_plugins.cache_clear()
    yield made
    gymnasium.registry.clear()
    gymnasium.registry.update(before)
    simulators._register_plugins.cache_clear()


def test_a_module_is_imported_that_registers_the_environment(package):
    env = make_offline_environment(package("their_carts", "TheirCart-v0"))
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(7)][-1], "its own limit holds"
    assert simulators.strip_module_and_version("their_carts:TheirCart-v0") == "TheirCart"


def test_a_package_registers_by_its_entry_point(package, monkeypatch):
    package("their_plugin", "PluginCart-v0", now="")
    package("their_broken_plugin", "x", now="raise OSError('no licence')")
    points = [
        EntryPoint("__root__", "their_plugin:register", simulators.PLUGINS),
        EntryPoint("theirs", "their_broken_plugin:register", simulators.PLUGINS),
    ]
    monkeypatch.setattr(simulators, "entry_points", lambda group: [one for one in points if one.group == group])
    assert get_policy_spaces.__wrapped__("PluginCart-v0") == Spaces(4, 2, discrete=True)
    make_offline_environment("CartPole-v1")
    with pytest.raises(StageError) as stopped:
        make_offline_environment("PluginCrt-v0")
    assert str(stopped.value).startswith("environment PluginCrt-v0: unknown; near names: PluginCart-v0")
    assert str(stopped.value).endswith("entry point their_broken_plugin:register failed: no licence")


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ("no_such_package:Cart-v0", "no module no_such_package is installed"),
        ("no_such.inner:Cart-v0", "no module no_such is installed"),
        ("__main__:Cart-v0", "module __main__ stands|no module __main__ is installed|unknown"),
        ("json:Cart-v0", "unknown; near names: CartPole-v0|unknown; near names"),
        ("json.no_such:Cart-v0", "module json.no_such cannot be imported: ModuleNotFoundError: No module named"),
        ("tests.tasks.goal:Reach-v0", "module tests stands in the working directory; install it to use it"),
    ],
)
def test_a_module_that_does_not_serve_is_one_clear_line(environment, told):
    with pytest.raises(StageError, match=f"^environment {environment}: ({told})") as stopped:
        make_offline_environment(environment)
    assert "\n" not in str(stopped.value)


def test_a_module_that_breaks_is_one_clear_line(package):
    with pytest.raises(
        StageError, match=r"module broken_carts cannot be imported: ZeroDivisionError: division by zero$"
    ):
        make_offline_environment(package("broken_carts", "x", now="1 / 0"))


def test_an_environment_that_breaks_when_it_is_made_is_one_clear_line(package):
    """As Fetch of Gymnasium-Robotics 1.4.2 does with MuJoCo 4: an assertion without a word."""
    breaks = "register()\ndef broken(**_): assert False\ngymnasium.registry['BrokenCart-v0'].entry_point = broken"
    with pytest.raises(StageError, match=r"^environment half_carts:BrokenCart-v0: cannot be made: AssertionError$"):
        make_offline_environment(package("half_carts", "BrokenCart-v0", now=breaks))


@pytest.mark.parametrize("module", ["came_with_data", "data_of.theirs"])
def test_what_stands_in_the_working_directory_is_not_run(module, tmp_path, monkeypatch):
    """Neither a file beside params.yaml nor one in a data folder is run, though `python -m` has both on its path."""
    file = tmp_path / f"{module.replace('.', '/')}.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text("raise AssertionError('it ran')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(StageError, match=r"stands in the working directory; install it to use it$"):
        make_offline_environment(f"{module}:X-v0")
    assert module not in sys.modules
