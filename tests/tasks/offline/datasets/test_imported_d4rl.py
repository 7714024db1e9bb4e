import re

import h5py
import numpy as np
import pytest

from tasks.common.errors import StageError
from tasks.offline.datasets import dataset_import, episodes
from tasks.offline.datasets.episodes import BadEpisode, make_episode
from tests.tasks.foreign import INF, NAN, WHOLE, equal, hopper, with_value


def flat(path, whole, *, tail=0, following=True, **changes):
    """A file in D4RL's form."""
    arrays = {
        "observations": np.concatenate([one.observations[:-1] for one in whole]),
        "actions": np.concatenate([one.actions for one in whole]),
        "rewards": np.concatenate([one.rewards for one in whole]),
        "terminals": np.concatenate([one.terminations for one in whole]),
        "timeouts": np.concatenate([one.truncations for one in whole]),
        "next_observations": np.concatenate([one.observations[1:] for one in whole]),
    }
    arrays = {name: np.concatenate([values, values[:tail]]) for name, values in arrays.items()}
    if not following:
        del arrays["next_observations"]
    with h5py.File(path, "w") as file:
        for name, values in (arrays | changes).items():
            if values is not None:
                file[name] = values
    return path


def test_d4rl_with_next_observations_is_whole(tmp_path):
    found = dataset_import.read_d4rl_dataset(flat(tmp_path / "it.hdf5", WHOLE), "Hopper-v5").episodes
    assert len(found) == 3
    assert all(equal(one, other) for one, other in zip(found, WHOLE, strict=True))
    episodes.check_episodes(found, 11, 3, discrete=False)


def test_d4rl_without_them_loses_the_last_step_of_a_truncated_episode_only(tmp_path):
    found = dataset_import.read_d4rl_dataset(flat(tmp_path / "it.hdf5", WHOLE, following=False), "Hopper-v5").episodes
    assert [len(one) for one in found] == [4, 2, 5]
    cut = found[1]
    np.testing.assert_array_equal(cut.observations, WHOLE[1].observations[:3], "the true next observation")
    assert cut.truncations.tolist() == [False, True]
    assert not cut.terminations.any()
    ended = found[0]
    assert ended.terminations.tolist() == [False, False, False, True]
    np.testing.assert_array_equal(ended.observations[-1], ended.observations[-2])
    episodes.check_episodes(found, 11, 3, discrete=False)


def test_d4rl_a_truncated_episode_of_one_step_leaves_nothing(tmp_path):
    whole = [hopper(1, False), hopper(2, True)]
    found = dataset_import.read_d4rl_dataset(flat(tmp_path / "it.hdf5", whole, following=False), "Hopper-v5").episodes
    assert [len(one) for one in found] == [2]


def test_d4rl_what_follows_the_last_end_is_left_out(tmp_path):
    found = dataset_import.read_d4rl_dataset(flat(tmp_path / "it.hdf5", WHOLE, tail=2), "Hopper-v5")
    assert [len(one) for one in found.episodes] == [4, 3, 5]
    assert found.left_out == 2
    assert found.notes[0].startswith("2 of 14 steps are left out: 2 behind the last end, 0 at a cut")
    found = dataset_import.read_d4rl_dataset(flat(tmp_path / "it.hdf5", WHOLE, tail=2, following=False), "Hopper-v5")
    assert [len(one) for one in found.episodes] == [4, 2, 5]
    assert found.notes[0].startswith("3 of 14 steps are left out: 2 behind the last end, 1 at a cut")


def test_both_ends_at_once_are_an_end(tmp_path):
    """The time limit came in the step that ended the episode: what follows is worth nothing, as D4RL's reader has
    it.
    """
    timeouts = np.concatenate([one.truncations | one.terminations for one in WHOLE])
    found = dataset_import.read_d4rl_dataset(
        flat(tmp_path / "it.hdf5", WHOLE, following=False, timeouts=timeouts), "Hopper-v5"
    )
    assert [bool(one.terminations[-1]) for one in found.episodes] == [True, False, True]
    assert [bool(one.truncations[-1]) for one in found.episodes] == [False, True, False]
    assert found.left_out == 1


@pytest.mark.parametrize(
    ("limit", "following", "lengths", "terminated", "left_out"),
    [
        (5, True, [3, 5, 4, 2], [True, False, True, False], 0),
        (5, False, [3, 4, 4, 1], [True, False, True, False], 2),
        (3, True, [3, 3, 3, 3, 2], [True, False, False, True, False], 0),  # an end at the limit is an end
        (3, False, [3, 2, 2, 3, 1], [True, False, False, True, False], 3),
        (1000, False, [3, 9, 1], [True, True, False], 1),
    ],
)
def test_without_timeouts_an_episode_is_cut_at_the_step_limit(
    limit, following, lengths, terminated, left_out, tmp_path
):
    """Fourteen steps with ends at the third and the twelfth, as D4RL's qlearning_dataset cuts them; the file ends where
    it may.
    """
    whole = [hopper(3, True), hopper(9, True), hopper(2, False)]
    file = flat(tmp_path / "it.hdf5", whole, following=following, timeouts=None)
    found = dataset_import.read_d4rl_dataset(file, f"Hopper-v5 {{max_episode_steps: {limit}}}")
    assert [len(one) for one in found.episodes] == lengths
    assert [bool(one.terminations[-1]) for one in found.episodes] == terminated
    assert found.left_out == left_out
    assert found.notes[0].startswith(f"no timeouts: cut after {limit} steps, the limit of Hopper-v5 {{max_episode")
    episodes.check_episodes(found.episodes, 11, 3, discrete=False)


def test_without_timeouts_the_limit_is_the_environments_own_or_it_is_asked_for(tmp_path):
    file = flat(tmp_path / "it.hdf5", WHOLE, following=False, timeouts=None)
    assert [len(one) for one in dataset_import.read_d4rl_dataset(file, "Hopper-v5").episodes] == [4, 8]
    with pytest.raises(
        BadEpisode,
        match=r'^timeouts: missing, and Hopper.* -1} has no step limit .* such as "Hopper.* \| TimeLimit {max_',
    ):
        dataset_import.read_d4rl_dataset(file, "Hopper-v5 {max_episode_steps: -1}")


def test_timeouts_of_which_none_is_set_are_none(tmp_path):
    """Else several episodes would be one, and a return what they earned together."""
    whole = [hopper(1500, True), hopper(200, True)]
    found = dataset_import.read_d4rl_dataset(flat(tmp_path / "it.hdf5", whole), "Hopper-v5")
    assert [(len(one), bool(one.terminations[-1])) for one in found.episodes] == [
        (1000, False),
        (500, True),
        (200, True),
    ]
    assert found.notes[0].startswith("no timeout is set: cut after 1000 steps, the limit of Hopper-v5")
    found = dataset_import.read_d4rl_dataset(
        flat(tmp_path / "it.hdf5", [hopper(1500, True), hopper(2, False)]), "Hopper-v5"
    )
    assert [len(one) for one in found.episodes] == [1500, 2]
    assert found.notes[0] == "1 of 2 episodes are longer than 1000 steps, the limit of Hopper-v5"


def test_what_else_is_in_the_file_is_named(tmp_path):
    found = dataset_import.read_d4rl_dataset(
        flat(tmp_path / "it.hdf5", WHOLE, truncations=np.zeros(12), episode_id=np.zeros(12)), "Hopper-v5"
    )
    assert found.notes[0] == "not read: episode_id, truncations"


def test_ends_written_as_numbers(tmp_path):
    terminals = np.concatenate([one.terminations for one in WHOLE]).astype(np.float32)
    found = dataset_import.read_d4rl_dataset(
        flat(tmp_path / "it.hdf5", WHOLE, terminals=terminals), "Hopper-v5"
    ).episodes
    assert [bool(one.terminations[-1]) for one in found] == [True, False, True]


def test_actions_come_to_lie_in_our_box(tmp_path):
    """Pendulum takes -2 to 2; an action beyond that by rounding alone is clipped, as the environment would do."""
    whole = [make_episode(np.zeros((4, 3)), np.array([[-2.0], [1.0], [2 + 1e-6]]), np.zeros(3), True)]
    (found,) = dataset_import.read_d4rl_dataset(flat(tmp_path / "it.hdf5", whole), "Pendulum-v1").episodes
    assert found.actions[:, 0].tolist() == [-1, 0.5, 1]


@pytest.mark.parametrize(
    ("environment", "size", "action", "told"),
    [
        ("CartPole-v1", 4, 7, "one of 0 to 1 expected, got 7"),
        ("CartPole-v1", 4, -1, "one of 0 to 1 expected, got -1"),
        ("CartPole-v1", 4, 0.5, "one of 0 to 1 expected, got 0.5"),
        ("Pendulum-v1", 3, [7.0], r"a number within \[-2, 2\] expected, got 7"),
        ("Pendulum-v1", 3, [-2.001], r"a number within \[-2, 2\] expected, got -2.001"),
    ],
)
def test_actions_that_the_environment_does_not_have_are_refused_when_read(environment, size, action, told, tmp_path):
    """With two discrete actions a 7 has no row in a table, and a torque of 7 is not clipped to 2."""
    fine = np.zeros_like(np.array([action, action, action]))
    actions = fine.copy()
    actions[1] = action
    whole = [make_episode(np.zeros((4, size)), taken, np.zeros(3), True) for taken in (fine, actions)]
    with pytest.raises(BadEpisode, match=f"^episode 1: actions: {told} at step 1$"):
        dataset_import.read_d4rl_dataset(flat(tmp_path / "it.hdf5", whole), environment)


STEPS = sum(map(len, WHOLE))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"terminals": None}, "terminals: missing (a D4RL file has observations, actions, rewards, terminals)"),
        ({"rewards": np.zeros(STEPS - 1)}, f"rewards: shape ({STEPS},) expected, got ({STEPS - 1},)"),
        ({"rewards": 3.0}, "rewards: one row a step expected, got a single number"),
        ({"rewards": [b"one"] * STEPS}, "rewards: numbers expected, got object"),
        ({"rewards": np.void(b"gASVCg==")}, "rewards: numbers expected, got |V8"),
        (
            {"observations": np.zeros((STEPS + 1, 11))},
            f"observations: shape ({STEPS}, 11) expected, got ({STEPS + 1}, 11)",
        ),
        ({"terminals": np.zeros((STEPS, 1), bool)}, f"terminals: shape ({STEPS},) expected, got ({STEPS}, 1)"),
        ({"terminals": np.full(STEPS, np.nan)}, "terminals: true or false expected, got nan at step 0"),
        (
            {"terminals": np.zeros(STEPS, bool), "timeouts": np.zeros(STEPS, bool)},
            f"terminals: no end in {STEPS} steps",
        ),
        (
            {"next_observations": np.zeros((STEPS, 11))},
            "episode 0: next_observations: step 0 is not followed by what it says",
        ),
        (
            {"next_observations": np.zeros((STEPS, 4))},
            f"next_observations: shape ({STEPS}, 11) expected, got ({STEPS}, 4)",
        ),
        ({"actions": np.zeros((STEPS, 1))}, "episode 0: actions: shape (4, 3) expected, got (4, 1)"),
        ({"actions": np.zeros(STEPS)}, "episode 0: actions: shape (4, 3) expected, got (4,)"),
        (
            {"observations": np.zeros((STEPS, 17)), "next_observations": None},
            "episode 0: observations: shape (5, 11) expected, got (5, 17)",
        ),
    ],
)
def test_bad_d4rl_files(changes, told, tmp_path):
    with pytest.raises(BadEpisode, match=f"^{re.escape(told)}"):
        dataset_import.read_d4rl_dataset(flat(tmp_path / "it.hdf5", WHOLE, **changes), "Hopper-v5")


@pytest.mark.parametrize(
    ("field", "at", "value", "told"),
    [
        ("observations", (5, 2), NAN, "episode 1: observations: nan at step 1"),
        ("observations", (5, 2), 1e39, "episode 1: next_observations: step 0 is not followed by what it says"),
        ("actions", (5, 2), INF, "episode 1: actions: inf at step 1"),
        ("actions", (5, 2), NAN, "episode 1: actions: nan at step 1"),
        ("rewards", 5, 1e39, r"episode 1: rewards: 1e\+39 at step 1"),
    ],
)
def test_values_that_are_not_finite_or_not_in_float32_are_told(field, at, value, told, tmp_path):
    whole = np.concatenate([getattr(one, field)[: len(one)] for one in WHOLE])
    file = flat(tmp_path / "it.hdf5", WHOLE, **{field: with_value(whole, at, value)})
    with pytest.raises(BadEpisode, match=f"^{told}"):
        episodes.check_episodes(dataset_import.read_d4rl_dataset(file, "Hopper-v5").episodes, 11, 3, discrete=False)


def test_numbers_in_either_precision_are_the_same_episodes(tmp_path):
    halves = {
        name: np.concatenate([getattr(one, name)[: len(one)] for one in WHOLE]).astype(np.float32)
        for name in ("observations", "actions", "rewards")
    }
    found = dataset_import.read_d4rl_dataset(flat(tmp_path / "it.hdf5", WHOLE, **halves), "Hopper-v5").episodes
    assert all(equal(one, other) for one, other in zip(found, WHOLE, strict=True))


def test_no_file_at_all(tmp_path):
    with pytest.raises(StageError, match=r"it.hdf5: no D4RL file: No such file or directory$"):
        dataset_import.read_d4rl_dataset(tmp_path / "it.hdf5", "Hopper-v5")
    (tmp_path / "it.hdf5").write_text("words")
    with pytest.raises(StageError, match=r"it.hdf5: no D4RL file: .*file signature not found"):
        dataset_import.read_d4rl_dataset(tmp_path / "it.hdf5", "Hopper-v5")
    with pytest.raises(StageError, match=r"it: no Minari data set: No such file or directory$"):
        dataset_import.read_minari_dataset(tmp_path / "it", "Hopper-v5")


def test_a_torn_d4rl_file_is_one_line(tmp_path):
    file = flat(tmp_path / "it.hdf5", WHOLE)
    file.write_bytes(file.read_bytes()[:4000])
    with pytest.raises(StageError, match=r"^\S+it.hdf5: no D4RL file: .*truncated file"):
        dataset_import.read_d4rl_dataset(file, "Hopper-v5")


def test_a_d4rl_file_of_groups_is_told(tmp_path):
    file = flat(tmp_path / "it.hdf5", WHOLE, observations=None)
    with h5py.File(file, "a") as opened:
        opened.create_group("observations")
    with pytest.raises(BadEpisode, match=r"^observations: an array expected, got a group"):
        dataset_import.read_d4rl_dataset(file, "Hopper-v5")
