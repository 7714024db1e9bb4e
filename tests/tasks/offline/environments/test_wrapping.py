"""Environments with wrappers, named by params.yaml alone."""

import json

import gymnasium
import numpy as np
import pytest
from pydantic import ValidationError

from tasks.algorithms.offline.transition_tensors import Spaces
from tasks.common.errors import StageError
from tasks.offline import dqn
from tasks.offline.configs.behaviour import BehaviourTraining
from tasks.offline.configs.wrappers import Wrapper, parse_environment_name
from tasks.offline.datasets import dataset_files
from tasks.offline.environments import simulators
from tasks.offline.environments.simulators import get_policy_spaces, make_offline_environment
from tests.conftest import PARAMS
from tests.tasks.offline.worlds import record

STACKED = "CartPole-v1 | FrameStackObservation {stack_size: 3} | TimeAwareObservation"
TRAINING = {"steps": 0, "medium": 0.5, "evaluate_every": 1, "learning_rate": 0.1, "gamma": 0.9, "entropy": 0.0}


def test_a_name_is_read_from_the_inside_out():
    assert parse_environment_name(
        "ale:Pong-v5 {mode: 2, of: {a: b}} | mine.inner:Twice {times: [1, 2], word: a} | ClipReward"
    ) == (
        "ale:Pong-v5",
        {"mode": 2, "of": {"a": "b"}},
        [Wrapper("mine.inner:Twice", {"times": [1, 2], "word": "a"}), Wrapper("ClipReward", {})],
    )
    assert parse_environment_name("graph") == ("graph", {}, [])
    for said in ("no", "Off", "YES"):
        with pytest.raises(ValueError, match=f"^expected true or false for is_slippery, .* not {said}$"):
            parse_environment_name(f"FrozenLake-v1 {{is_slippery: {said}}}")


def test_arguments_are_gymnasiums():
    """On ice that is not slippery a step to the right is one; the step limit is an argument of gymnasium.make."""
    env = make_offline_environment("FrozenLake-v1 {is_slippery: false, max_episode_steps: 3}")
    env.reset(seed=0)
    steps = [env.step(2) for _ in range(3)]
    assert [step[0].argmax() for step in steps] == [1, 2, 3]
    assert [step[3] for step in steps] == [False, False, True]
    assert get_policy_spaces("FrozenLake-v1 {map_name: 8x8}").observation == 64
    assert get_policy_spaces('FrozenLake-v1 {desc: ["SFF", "FFG"]} | TimeAwareObservation').observation == 7


@pytest.mark.parametrize(
    ("environment", "limit", "steps"),
    [
        ("CliffWalking-v1", None, 1000),
        ("CliffWalking-v1 {max_episode_steps: 7}", None, 7),
        ("CliffWalking-v1 | TimeLimit {max_episode_steps: 7}", None, 7),
        ("CliffWalking-v1 | TimeLimit {max_episode_steps: 1200}", None, 1200),  # it has no limit of its own
        ("CliffWalking-v1 {max_episode_steps: -1}", None, 1000),
        ("CliffWalking-v1 | TimeLimit {max_episode_steps: 7}", 20, 20),  # past the limit, to see what values are worth
        ("FrozenLake-v1 | TimeLimit {max_episode_steps: 7}", None, 7),
    ],
)
def test_time_limits(environment, limit, steps):
    """Against the wall it stays where it is."""
    env = make_offline_environment(environment, limit=limit)
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(steps)] == [False] * (steps - 1) + [True]


def test_actions_are_rescaled_twice():
    """The wrapper takes 0 to 4 for Pendulum's -2 to 2, and ours around it takes -1 to 1 for that."""
    once, twice = (
        make_offline_environment("Pendulum-v1"),
        make_offline_environment("Pendulum-v1 | RescaleAction {min_action: 0, max_action: 4}"),
    )
    for env in (once, twice):
        env.reset(seed=0)
    assert (once.step(np.array([0.5]))[0] == twice.step(np.array([0.5]))[0]).all()
    assert twice.scale_recorded_actions(np.array([[4.0], [1.0]])).tolist() == [[1.0], [-0.5]]


class Wordy(gymnasium.Env):
    """Says what to do, as MiniGrid does."""

    observation_space = gymnasium.spaces.Dict(
        {
            "mission": gymnasium.spaces.Text(20),
            "view": gymnasium.spaces.Dict({"at": gymnasium.spaces.Discrete(3), "sign": gymnasium.spaces.Text(5)}),
            "seen": gymnasium.spaces.Box(0, 1, (2,)),
            "heard": gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(2)),
            "way": gymnasium.spaces.MultiBinary(4),
        }
    )
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, words=True, render_mode=None):
        if words is None:
            self.observation_space = gymnasium.spaces.Text(5)

    def reset(self, *, seed=None, options=None):
        way = np.array([1, 0, 0, 1], np.int8)
        return {"mission": "go", "view": {"at": 1, "sign": "x"}, "seen": np.zeros(2), "heard": (1,), "way": way}, {}


def test_what_an_observation_says_in_words_is_named_with_the_wrapper_that_takes_it_away(monkeypatch):
    spec = gymnasium.envs.registration.EnvSpec("Wordy-v0", entry_point=Wordy)
    monkeypatch.setitem(gymnasium.registry, "Wordy-v0", spec)
    with pytest.raises(StageError, match=r"observations have .*, which is no numbers") as refused:
        make_offline_environment("Wordy-v0")
    assert "have heard, mission, view/sign, which" in str(refused.value)
    without = str(refused.value).partition('the id "')[2].rstrip('"')
    assert without == "Wordy-v0 | FilterObservation {filter_keys: [seen, way]}"
    assert make_offline_environment(without).reset()[0].tolist() == [0, 0, 1, 0, 0, 1]
    with pytest.raises(StageError, match=r"observations of Text\(.*\) are not supported$"):
        make_offline_environment("Wordy-v0 {words: null}")


def test_observations_by_hand():
    plain, stacked = make_offline_environment("CartPole-v1"), make_offline_environment(STACKED)
    assert get_policy_spaces(STACKED) == Spaces(13, 2, discrete=True)
    rows = [plain.reset(seed=4)[0]]
    first = stacked.reset(seed=4)[0]
    np.testing.assert_array_equal(first, [*rows[0], *rows[0], *rows[0], 0])
    for action in (1, 0, 1):
        rows.append(plain.step(action)[0])
        seen = stacked.step(action)[0]
    np.testing.assert_array_equal(seen, [*rows[1], *rows[2], *rows[3], 3])
    assert make_offline_environment("CartPole-v1").observation_space.shape != stacked.observation_space.shape


def test_continuous_actions_as_numbers():
    """Three bins for each of Hopper's three joints: what learns Q-values of discrete actions can play it."""
    assert get_policy_spaces("Hopper-v5 | DiscretizeAction {bins: 3}") == Spaces(11, 27, discrete=True)


def test_random_wrappers_follow_the_seed():
    name = "CartPole-v1 | StickyAction {repeat_action_probability: 0.5}"

    def played():
        env = make_offline_environment(name)
        return [env.reset(seed=1)[0].tolist(), *(env.step(number % 2)[0].tolist() for number in range(8))]

    assert played() == played()
    plain = make_offline_environment("CartPole-v1")
    assert played() != [plain.reset(seed=1)[0].tolist(), *(plain.step(number % 2)[0].tolist() for number in range(8))]


def test_a_limit_is_in_steps_of_the_environment_inside():
    env = make_offline_environment("LunarLander-v3 | RepeatAction {num_repeats: 4}", limit=8)
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(2)] == [False, True]


def test_with_wrappers_it_is_another_environment():
    """D4RL's scores and the optimum of our own are of the plain ones."""
    assert dataset_files.find_d4rl_reference("Hopper-v5") is not None
    assert dataset_files.find_d4rl_reference("Hopper-v5 | ClipReward {max_reward: 1}") is None
    assert "graph | TimeAwareObservation" not in simulators.OPTIMA


def test_a_data_set_of_it_is_learned_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = record(tmp_path / "stacked", STACKED, 4)
    kept = json.loads((data / dataset_files.METADATA).read_text())
    assert kept["posttrain"]["environment"] == STACKED
    assert "env_spec" not in kept
    assert dataset_files.read_offline_dataset(data).spaces.observation == 13
    few = {"seeds": [0], "steps": 4, "batch_size": 8, "log_every": 2, "evaluate_episodes": 1, "hidden": [4]}
    both = {
        name: {"double": True, "target": True, "replay": True, "online": name == "online", "relabel": "none"}
        for name in ("DQN", "online")
    }
    explored = {**PARAMS["dqn"]["exploration"], "replay": 50, "warmup": 10}
    config = dqn.DqnConfig.model_validate({**PARAMS["dqn"], **few, "variants": both, "exploration": explored})
    assert set(dqn.run(config, data, tmp_path / "out")) == {"DQN", "online"}


WRAPPER = """
import gymnasium
class Twice(gymnasium.RewardWrapper):
    def __init__(self, env, times=2):
        super().__init__(env)
        self.times = times
    def reward(self, reward):
        return self.times * reward
class Nothing: ...
"""


def test_a_wrapper_of_an_installed_package(tmp_path, monkeypatch):
    (tmp_path / "their_wrappers.py").write_text(WRAPPER)
    monkeypatch.syspath_prepend(tmp_path)
    env = make_offline_environment("CartPole-v1 | their_wrappers:Twice {times: 3}")
    env.reset(seed=0)
    assert env.step(0)[1] == 3.0
    with pytest.raises(StageError, match=r"their_wrappers:Nothing is no wrapper of Gymnasium's kind$"):
        make_offline_environment("CartPole-v1 | their_wrappers:Nothing")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        StageError, match=r"module their_wrappers stands in the working directory; install it to use it$"
    ):
        make_offline_environment("CartPole-v1 | their_wrappers:Twice")


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ("CartPole-v1 | FrameStackObservation", "FrameStackObservation does not fit: TypeError: .*'stack_size'"),
        ("CartPole-v1 | FilterObservation {filter_keys: [a]}", "FilterObservation does not fit: "),
        ("CartPole-v1 | RecordVideo {video_folder: x}", "expected a wrapper module:Class, or one of ClipReward, .*"),
        ("CartPole-v1 {gravity: 9}", "cannot be made: .*unexpected keyword argument 'gravity'"),
        ("graph {limit: 3}", "graph takes no arguments"),
    ],
)
def test_what_does_not_fit_is_one_clear_line(environment, told):
    with pytest.raises(StageError, match=told) as stopped:
        make_offline_environment(environment)
    assert str(stopped.value).startswith(f"environment {environment.partition(' {')[0]}")
    assert "\n" not in str(stopped.value)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("CartPole-v1 | RecordVideo {video_folder: x}", "expected a wrapper module:Class, or one of ClipReward"),
        (
            "CartPole-v1 | MaxAndSkipObservation {skip: 9}",
            "not MaxAndSkipObservation",
        ),  # keeps frames of earlier episodes
        ("CartPole-v1 | minari:DataCollector", "not minari:DataCollector"),
        ("CartPole-v1 | FrameStackObservation {stack_size: !!int ''}", "expected arguments such as"),
        ("CartPole-v1 | NormalizeObservation", "not NormalizeObservation"),
        (
            "CartPole-v1 | gymnasium.wrappers:RecordVideo {video_folder: x}",
            "expected Gymnasium's wrappers without a module",
        ),
        ("CartPole-v1 | RepeatAction {num_repeats: [}", "expected arguments such as RepeatAction {name: value}"),
        ("CartPole-v1 | RepeatAction {4}", "expected arguments such as RepeatAction {name: value}"),
        ("FrozenLake-v1 {is_slippery: false", "expected text such as LunarLander-v3"),
        ("FrozenLake-v1 {a: 1} {b: 2}", "expected arguments such as FrozenLake-v1 {name: value}"),
        ("FrozenLake-v1 {desc: !!python/name:os.system x}", "expected arguments"),
        ("FrozenLake-v1{is_slippery: false}", "expected text such as LunarLander-v3"),
        ("CartPole-v1 || RepeatAction", "expected text such as LunarLander-v3, module:id, or"),
        ("CartPole-v1 | RepeatAction {num_repeats: !!python/name:os.system x}", "expected arguments"),
    ],
)
def test_params_are_checked_before_anything_runs(name, told):
    with pytest.raises(ValidationError, match=told):
        BehaviourTraining.model_validate({**TRAINING, "id": name})


def test_a_name_without_quotes_is_told_to_have_them():
    """YAML reads FrozenLake-v1 {is_slippery: false} as a key and its value."""
    with pytest.raises(ValidationError, match="expected text in quotes where it has braces, such as"):
        BehaviourTraining.model_validate({**TRAINING, "id": {"FrozenLake-v1 {is_slippery": "false}"}})


def test_params_take_what_fits():
    name = "FrozenLake-v1 {map_name: 8x8} | TimeLimit {max_episode_steps: 7}"
    assert BehaviourTraining.model_validate({**TRAINING, "id": name}).id == name
    assert BehaviourTraining.model_validate({**TRAINING, "id": STACKED}).id == STACKED


LAUGHS = (
    "A-v1 {x0: &x0 ["
    + ", ".join("a" * 10)
    + "]"
    + "".join(f", x{level}: &x{level} [{', '.join([f'*x{level - 1}'] * 10)}]" for level in range(1, 9))
    + "}"
)


@pytest.mark.parametrize(
    "text", [LAUGHS, "A-v1 {a: &a [*a]}", "A-v1 {a: 1} | TimeLimit {<<: *a}", f"A-v1 {{a: {'[' * 3000}{']' * 3000}}}"]
)
def test_arguments_that_could_stand_for_a_billion_values_are_refused_unread(text):
    with pytest.raises(ValueError, match="at most 2000 letters, without anchors and aliases"):
        parse_environment_name(text)


def test_signs_within_texts_are_no_anchors():
    assert parse_environment_name("A-v1 {a: 'x*y', b: x&y, c: '*'}")[1] == {"a": "x*y", "b": "x&y", "c": "*"}
