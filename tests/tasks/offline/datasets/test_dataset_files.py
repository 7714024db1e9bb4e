import json
import time
from dataclasses import replace

import gymnasium
import h5py
import numpy as np
import pytest
import torch

from tasks.common.errors import StageError
from tasks.offline.datasets import dataset_files
from tasks.offline.datasets.dataset_files import (
    DATA,
    METADATA,
    ScoreReference,
    read_offline_dataset,
    write_offline_dataset,
)
from tasks.offline.environments import simulators
from tasks.offline.environments.rollouts import play_seeded_episodes, wrap_as_player


class Chance:
    """A policy of random actions."""

    def __init__(self, environment):
        self.spaces, self.generator = simulators.get_policy_spaces(environment), torch.Generator().manual_seed(0)

    def act(self, observations):
        if self.spaces.discrete:
            return torch.randint(self.spaces.action, (len(observations),), generator=self.generator)
        return 2 * torch.rand((len(observations), self.spaces.action), generator=self.generator) - 1


def played(environment, episodes=4):
    return play_seeded_episodes(environment, wrap_as_player(Chance(environment)), episodes, seed=0).episodes


REFERENCE = ScoreReference(-10.0, 30.0)


@pytest.fixture(scope="module")
def cart(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "cart-random"
    write_offline_dataset(path, "CartPole-v1", played("CartPole-v1"), REFERENCE, {"source": "random", "seed": 7})
    return path


@pytest.mark.parametrize("environment", ["graph", "CartPole-v1", "Hopper-v5"])
def test_written_and_read(environment, tmp_path):
    whole = played(environment)
    write_offline_dataset(tmp_path / "it", environment, whole, REFERENCE, {"source": "random", "seed": 7})
    found = read_offline_dataset(tmp_path / "it")
    assert (found.name, found.environment, found.reference) == ("it", environment, REFERENCE)
    assert found.spaces == simulators.get_policy_spaces(environment)
    assert found.metadata == {"source": "random", "seed": 7}
    transitions = found.transitions
    assert transitions.lengths.tolist() == [len(one) for one in whole]
    assert transitions.actions.dtype == (torch.int64 if found.spaces.discrete else torch.float32)
    start = 0
    for one in whole:
        rows = slice(start, start + len(one))
        start += len(one)
        np.testing.assert_array_equal(transitions.observations[rows], one.observations[:-1])
        np.testing.assert_array_equal(transitions.next_observations[rows], one.observations[1:])
        np.testing.assert_array_equal(transitions.actions[rows], one.actions)
        np.testing.assert_allclose(transitions.rewards[rows], one.rewards, rtol=1e-6)
        np.testing.assert_array_equal(transitions.terminated[rows], one.terminations)
    np.testing.assert_allclose(transitions.returns, [one.rewards.sum() for one in whole], rtol=1e-5)


def test_a_truncated_episode_keeps_its_true_next_observation_and_is_not_terminated(tmp_path):
    """The walk is cut off: its next observation is the node that it went to, whose value is not 0."""
    whole = [one for one in played("graph", 20) if one.truncations[-1]]
    write_offline_dataset(tmp_path / "it", "graph", whole, REFERENCE, {})
    transitions = read_offline_dataset(tmp_path / "it").transitions
    last = transitions.starts + transitions.lengths - 1
    assert not transitions.terminated[last].any()
    edges = simulators.GRAPH.successors[transitions.observations[last].argmax(1), transitions.actions[last]]
    assert transitions.next_observations[last].argmax(1).tolist() == edges.tolist()


@pytest.mark.parametrize("environment", ["CartPole-v1", "Hopper-v5", "graph"])
def test_minari_opens_it(environment, tmp_path, monkeypatch):
    import minari

    whole = played(environment)
    write_offline_dataset(tmp_path / f"{environment}-random", environment, whole, REFERENCE, {})
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset = minari.load_dataset(f"{environment}-random")
    assert (dataset.total_episodes, dataset.total_steps) == (len(whole), sum(map(len, whole)))
    for found, one in zip(dataset.iterate_episodes(), whole, strict=True):
        np.testing.assert_array_equal(found.observations, one.observations)
        np.testing.assert_array_equal(found.actions, one.actions)
        np.testing.assert_array_equal(found.truncations, one.truncations)
    assert 100 * minari.get_normalized_score(dataset, np.array(5.0)) == pytest.approx(REFERENCE.score(5.0))
    assert dataset.action_space == simulators.make_offline_environment(environment).action_space
    if environment in gymnasium.registry:
        env = dataset.recover_environment()
        assert env.spec.id == environment
        env.close()


def test_scores():
    assert [REFERENCE.score(value) for value in (-10, 10, 30, 50)] == [0, 50, 100, 150]


@pytest.mark.parametrize(
    ("environment", "maximum"), [("Hopper-v5", 3234.3), ("Hopper-v2", 3234.3), ("Reacher-v5", None), ("graph", None)]
)
def test_d4rls_reference_is_of_any_version(environment, maximum):
    found = dataset_files.find_d4rl_reference(environment)
    assert (found and found.maximum) == maximum


def with_array(path, field, change):
    with h5py.File(path / DATA, "a") as file:
        values = file["episode_2"][field][()]
        del file["episode_2"][field]
        if change is not None:
            file["episode_2"][field] = change(values)


def put(value):
    def change(values):
        values[(1,) + (0,) * (values.ndim - 1)] = value
        return values

    return change


@pytest.mark.parametrize(
    ("field", "change", "told"),
    [
        ("observations", put(float("nan")), "observations: nan at step 1"),
        ("observations", lambda values: values[:, :3], r"observations: shape \(\d+, 4\) expected, got \(\d+, 3\)"),
        ("actions", put(2), "actions: one of 0 to 1 expected, got 2 at step 1"),
        ("rewards", put(100.0), r"rewards: they sum to \d+, but the return is \d+"),
        ("terminations", None, "terminations: missing"),
        ("terminations", lambda values: values & False, "terminations: the last step is neither terminated nor trunc"),
    ],
)
def test_bad_data_is_one_line_with_data_set_episode_and_field(cart, tmp_path, field, change, told):
    write_offline_dataset(tmp_path / "cart", "CartPole-v1", played("CartPole-v1"), REFERENCE, {})
    with_array(tmp_path / "cart", field, change)
    with pytest.raises(StageError, match=f"^data set cart: episode 2: {told}") as stopped:
        read_offline_dataset(tmp_path / "cart")
    assert "\n" not in str(stopped.value)


def described(path, **changes):
    metadata = json.loads((path / METADATA).read_text())
    metadata["posttrain"] |= changes
    (path / METADATA).write_text(json.dumps(metadata))


def test_an_unknown_environment_is_named_with_the_data_set(tmp_path):
    write_offline_dataset(tmp_path / "cart", "CartPole-v1", played("CartPole-v1"), REFERENCE, {})
    described(tmp_path / "cart", environment="CartPol-v1")
    with pytest.raises(StageError, match=r"^data set cart: environment CartPol-v1: unknown; near names: CartPole-v1"):
        read_offline_dataset(tmp_path / "cart")
    described(tmp_path / "cart", environment="LunarLander-v3")
    with pytest.raises(StageError, match=r"^data set cart: episode 0: observations: shape \(\d+, 8\) expected"):
        read_offline_dataset(tmp_path / "cart")


def test_what_is_no_data_set(tmp_path):
    with pytest.raises(StageError, match=r"^data set nothing: cannot be read: .*No such file"):
        read_offline_dataset(tmp_path / "nothing")
    write_offline_dataset(tmp_path / "cart", "CartPole-v1", played("CartPole-v1"), REFERENCE, {})
    (tmp_path / "cart" / DATA).write_bytes(b"torn")
    with pytest.raises(StageError, match=r"^data set cart: cannot be read: .*file signature not found"):
        read_offline_dataset(tmp_path / "cart")


def test_bad_episodes_are_not_written(tmp_path):
    whole = played("CartPole-v1")
    whole[1] = replace(whole[1], rewards=whole[1].rewards * float("nan"))
    with pytest.raises(StageError, match="data set cart: episode 1: rewards: nan at step 0"):
        write_offline_dataset(tmp_path / "cart", "CartPole-v1", whole, REFERENCE, {})
    with pytest.raises(StageError, match="data set cart: no episodes"):
        write_offline_dataset(tmp_path / "cart", "CartPole-v1", [], REFERENCE, {})
    assert not (tmp_path / "cart").exists()


def test_same_episodes_same_bytes(cart, tmp_path):
    written = (cart / METADATA).stat().st_mtime
    time.sleep(max(0.0, written + 1.1 - time.time()))  # a time stamp would differ
    write_offline_dataset(
        tmp_path / cart.name, "CartPole-v1", played("CartPole-v1"), REFERENCE, {"source": "random", "seed": 7}
    )
    for file in (DATA, METADATA):
        assert (tmp_path / cart.name / file).read_bytes() == (cart / file).read_bytes()
