import re
from dataclasses import replace

import gymnasium
import h5py
import numpy as np
import pytest

from tasks.algorithms.offline.networks.mlp import MeanAction
from tasks.common.errors import StageError
from tasks.offline.datasets import dataset_files, dataset_import, episodes
from tasks.offline.datasets.dataset_files import ScoreReference
from tasks.offline.datasets.episodes import BadEpisode, make_episode
from tasks.offline.environments.rollouts import play_seeded_episodes, wrap_as_player
from tests.tasks import goal
from tests.tasks.foreign import INF, NAN, WHOLE, equal, with_value


def by_minari(name, env, buffers, monkeypatch, root, **options):
    """A data set as Minari itself writes it."""
    import minari
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    minari.create_dataset_from_buffers(
        name,
        [EpisodeBuffer(**buffer) for buffer in buffers],
        env=env,
        author="a",
        author_email="b",
        code_permalink="c",
        algorithm_name="d",
        description="e",
        eval_env=env,
        **options,
    )
    return root / name


def buffers(whole):
    return [{field: list(getattr(one, field)) for field in episodes.FIELDS} for one in whole]


def test_minari_is_read_as_minari_wrote_it(tmp_path, monkeypatch):
    """There is one observation more than actions, the true last one; a common mistake shifts observations against
    actions.
    """
    folder = by_minari("hopper/test-v0", "Hopper-v5", buffers(WHOLE), monkeypatch, tmp_path)
    found = dataset_import.read_minari_dataset(folder, "Hopper-v5").episodes
    assert all(equal(one, other) for one, other in zip(found, WHOLE, strict=True))
    assert equal(dataset_import.fetch_minari_dataset("hopper/test-v0", "Hopper-v5").episodes[2], WHOLE[2]), (
        "found where Minari keeps its own"
    )


def test_minari_with_numbers_for_observations(tmp_path, monkeypatch):
    lake = [make_episode(np.array([0, 4, 8, 9]), np.array([1, 1, 2]), np.zeros(3), False)]
    folder = by_minari("lake-v0", "FrozenLake-v1", buffers(lake), monkeypatch, tmp_path)
    (found,) = dataset_import.read_minari_dataset(folder, "FrozenLake-v1").episodes
    assert found.observations.argmax(1).tolist() == [0, 4, 8, 9]
    episodes.check_episodes([found], 16, 4, discrete=True)


def test_minari_without_an_end_is_told(tmp_path, monkeypatch):
    endless = [replace(WHOLE[0], terminations=WHOLE[0].terminations & False)]
    folder = by_minari("hopper-v0", "Hopper-v5", buffers(endless), monkeypatch, tmp_path)
    with pytest.raises(StageError, match="data set it: episode 0: terminations: the last step is neither"):
        dataset_files.write_offline_dataset(
            tmp_path / "it",
            "Hopper-v5",
            dataset_import.read_minari_dataset(folder, "Hopper-v5").episodes,
            ScoreReference(0, 1),
            {},
        )


def changed(folder, field, change):
    """A data set of Minari's with another array in its second episode."""
    with h5py.File(folder / dataset_files.DATA, "a") as file:
        values = file["episode_1"][field][()]
        del file["episode_1"][field]
        if change is not None:
            file["episode_1"][field] = change(values)


@pytest.mark.parametrize(
    ("field", "change", "told"),
    [
        ("actions", lambda values: values[:, :1], "actions: shape (3, 3) expected, got (3, 1)"),  # would be repeated
        ("actions", lambda values: values[:, 0], "actions: shape (3, 3) expected, got (3,)"),
        ("actions", lambda values: np.zeros((3, 5)), "actions: shape (3, 3) expected, got (3, 5)"),
        ("actions", lambda values: with_value(values, (1, 1), INF), "actions: inf at step 1"),  # would be clipped
        ("actions", lambda values: values + 3, "actions: a number within [-1, 1] expected, got "),
        ("observations", lambda values: values[:-1], "observations: shape (4, 11) expected, got (3, 11)"),
        ("observations", lambda values: values[:0], "observations: shape (4, 11) expected, got (0, 11)"),
        ("observations", lambda values: 3.0, "observations: one row a step expected, got a single number"),
        ("observations", lambda values: np.void(b"gASVCg=="), "observations: numbers expected, got |V8"),
        ("rewards", lambda values: values[:-1], "rewards: shape (3,) expected, got (2,)"),
        ("rewards", lambda values: values + 1, "rewards: they sum to "),
        ("terminations", lambda values: values + 0.5, "terminations: true or false expected, got 0.5 at step 0"),
        ("terminations", None, "terminations: missing"),
    ],
)
def test_bad_minari_data_is_told_by_episode_and_field(field, change, told, tmp_path, monkeypatch):
    folder = by_minari("hopper-v0", "Hopper-v5", buffers(WHOLE), monkeypatch, tmp_path)
    with h5py.File(folder / dataset_files.DATA, "a") as file:  # as Minari's collector notes it
        file["episode_1"].attrs["rewards_sum"] = WHOLE[1].rewards.sum()
    episodes.check_episodes(dataset_import.read_minari_dataset(folder, "Hopper-v5").episodes, 11, 3, discrete=False)
    changed(folder, field, change)
    with pytest.raises(BadEpisode, match=f"^episode 1: {re.escape(told)}"):
        episodes.check_episodes(dataset_import.read_minari_dataset(folder, "Hopper-v5").episodes, 11, 3, discrete=False)


def test_ends_of_minaris_written_as_numbers(tmp_path, monkeypatch):
    folder = by_minari("hopper-v0", "Hopper-v5", buffers(WHOLE), monkeypatch, tmp_path)
    changed(folder, "truncations", lambda values: values.astype(np.float64))
    episodes.check_episodes(dataset_import.read_minari_dataset(folder, "Hopper-v5").episodes, 11, 3, discrete=False)


def test_a_return_that_is_no_number(tmp_path, monkeypatch):
    folder = by_minari("hopper-v0", "Hopper-v5", buffers(WHOLE), monkeypatch, tmp_path)
    with h5py.File(folder / dataset_files.DATA, "a") as file:
        file["episode_1"].attrs["rewards_sum"] = "much"
    with pytest.raises(BadEpisode, match=r"^episode 1: return: a number expected, got 'much'"):
        dataset_import.read_minari_dataset(folder, "Hopper-v5")


def test_an_environment_of_another_name_is_told_though_the_shapes_fit(tmp_path, monkeypatch):
    """HalfCheetah and Walker2d both have observations of 17 numbers and actions of 6.

    Another version is another environment.
    """
    seen = np.zeros((4, 17))
    walk = [make_episode(seen, np.zeros((3, 6)), np.zeros(3), False)]
    folder = by_minari("walk-v0", "Walker2d-v5", buffers(walk), monkeypatch, tmp_path)
    with pytest.raises(StageError, match=r"walk-v0: recorded in Walker2d-v5, but environment is HalfCheetah-v5$"):
        dataset_import.read_minari_dataset(folder, "HalfCheetah-v5")
    metadata = folder / dataset_files.METADATA
    metadata.write_text(metadata.read_text().replace("Walker2d-v5", "Walker2d-v4"))
    with pytest.raises(StageError, match=r"walk-v0: recorded in Walker2d-v4, but environment is Walker2d-v5$"):
        dataset_import.read_minari_dataset(folder, "Walker2d-v5")


@pytest.mark.parametrize(
    ("tear", "told"),
    [
        (lambda data, metadata: data.write_bytes(data.read_bytes()[:5000]), "no Minari data set: .*truncated file"),
        (lambda data, metadata: data.write_bytes(b""), "no Minari data set: .*file signature not found"),
        (lambda data, metadata: data.unlink(), "no Minari data set: No such file or directory"),
        (lambda data, metadata: metadata.write_text("{"), "no Minari data set: Expecting property name"),
        (lambda data, metadata: metadata.write_text("[]"), "no Minari data set: 'total_episodes'"),
        (
            lambda data, metadata: metadata.write_text(
                metadata.read_text().replace('"total_episodes": 3', '"total_episodes": 4')
            ),
            "3 episodes here, but 4 in metadata.json",
        ),
    ],
)
def test_a_torn_minari_data_set_is_one_line(tear, told, tmp_path, monkeypatch):
    folder = by_minari("hopper-v0", "Hopper-v5", buffers(WHOLE), monkeypatch, tmp_path)
    tear(folder / dataset_files.DATA, folder / dataset_files.METADATA)
    with pytest.raises(StageError, match=rf"^\S+hopper-v0: {told}") as stopped:
        dataset_import.read_minari_dataset(folder, "Hopper-v5")
    assert "\n" not in str(stopped.value)


@pytest.mark.parametrize(("number", "shown"), [(16, "16"), (-1, "-1"), (2.5, "2.5"), (NAN, "nan")])
def test_a_number_that_is_no_observation_is_told(number, shown, tmp_path, monkeypatch):
    lake = [make_episode(np.array([0, 4]), np.array([1]), np.zeros(1), False)]
    folder = by_minari("lake-v0", "FrozenLake-v1", buffers(lake), monkeypatch, tmp_path)
    with h5py.File(folder / dataset_files.DATA, "a") as file:
        del file["episode_0"]["observations"]
        file["episode_0"]["observations"] = np.array([0, number])
    with pytest.raises(
        BadEpisode, match=rf"^episode 0: observations: one of Discrete\(16\) expected, got {shown} at step 1"
    ):
        dataset_import.read_minari_dataset(folder, "FrozenLake-v1")


def test_a_tuple_of_numbers_is_one_row(tmp_path, monkeypatch):
    """Blackjack shows (sum, card, ace): Minari keeps them as a group."""
    hand = {"observations": ([14, 20], [10, 10], [0, 0]), "actions": [1], "rewards": [0.0]}
    ends = {"terminations": [True], "truncations": [False]}
    folder = by_minari("cards-v0", "Blackjack-v1", [hand | ends], monkeypatch, tmp_path)
    (found,) = dataset_import.read_minari_dataset(folder, "Blackjack-v1").episodes
    env = gymnasium.make("Blackjack-v1")
    for row, seen in zip(found.observations, [(14, 10, 0), (20, 10, 0)], strict=True):
        np.testing.assert_array_equal(row, gymnasium.spaces.flatten(env.observation_space, seen))


def reached(monkeypatch, root, episodes_=3):
    """Random play in an environment with goals, written by Minari, and the same observations, flattened by
    Gymnasium.
    """
    env, rng = gymnasium.make(goal.NAME), np.random.default_rng(0)
    whole, rows = [], []
    for seed in range(episodes_):
        seen = [env.reset(seed=seed)[0]]
        actions = [rng.uniform(-2, 2, 1).astype(np.float32) for _ in range(goal.LONGEST)]
        steps = [env.step(action) for action in actions]
        seen += [step[0] for step in steps]
        rows.append(np.stack([gymnasium.spaces.flatten(env.observation_space, one) for one in seen]))
        panels = [one.pop("panel") for one in map(dict, seen)]
        parts = {key: [one[key] for one in seen] for key in seen[0] if key != "panel"}
        whole.append(
            {
                "observations": parts | {"panel": tuple(map(list, zip(*panels, strict=True)))},
                "actions": actions,
                "rewards": [step[1] for step in steps],
                "terminations": [step[2] for step in steps],
                "truncations": [step[3] for step in steps],
            }
        )
    return by_minari("reach/random-v0", goal.NAME, whole, monkeypatch, root), rows


def test_minari_with_a_dict_for_observations_is_read_as_it_is_played(tmp_path, monkeypatch):
    folder, rows = reached(monkeypatch, tmp_path)
    found = dataset_import.read_minari_dataset(folder, goal.NAME).episodes
    episodes.check_episodes(found, 11, 1, discrete=False)
    for one, row in zip(found, rows, strict=True):
        np.testing.assert_allclose(one.observations, row, rtol=1e-6)
    assert np.abs(found[0].actions).max() <= 1, "of -2 to 2"
    dataset_files.write_offline_dataset(tmp_path / "reach", goal.NAME, found, ScoreReference(-9.0, 0.0), {})
    again = dataset_files.read_offline_dataset(tmp_path / "reach")
    np.testing.assert_allclose(again.transitions.next_observations[-1], rows[-1][-1], rtol=1e-6)
    played = play_seeded_episodes(goal.NAME, wrap_as_player(MeanAction(again.spaces, [4])), 2, seed=0)
    assert played.initial[0].tolist() == pytest.approx(rows[0][0].tolist())


@pytest.mark.parametrize(
    ("part", "change", "told"),
    [
        ("desired_goal", None, "observations/desired_goal: missing"),
        (
            "desired_goal",
            lambda values: values[:-1],
            r"observations/desired_goal: shape \(6, 1\) expected, got \(5, 1\)",
        ),
        ("tool", lambda values: values + 1, r"observations/tool: one of Discrete\(3\) expected, got 3 at step 2"),
        ("panel/_index_0", lambda values: values[:, :1], r"observations/panel/_index_0: shape \(6, 2\) expected"),
        ("observation", lambda values: np.void(b"gASVCg=="), r"observations/observation: numbers expected, got \|V8"),
    ],
)
def test_what_is_wrong_with_a_part_is_told_by_its_name(part, change, told, tmp_path, monkeypatch):
    folder, _ = reached(monkeypatch, tmp_path)
    changed(folder, f"observations/{part}", change)
    with pytest.raises(BadEpisode, match=f"^episode 1: {told}"):
        dataset_import.read_minari_dataset(folder, goal.NAME)


def test_rows_where_parts_are_expected_are_told(tmp_path, monkeypatch):
    folder, rows = reached(monkeypatch, tmp_path)
    with h5py.File(folder / dataset_files.DATA, "a") as file:
        del file["episode_1"]["observations"]
        file["episode_1"]["observations"] = rows[1]
    with pytest.raises(BadEpisode, match=r"^episode 1: observations/achieved_goal: missing"):
        dataset_import.read_minari_dataset(folder, goal.NAME)


@pytest.mark.filterwarnings("ignore:`eval_env` is set to None", "ignore:env_spec is None")
@pytest.mark.parametrize("jpeg", [True, False])
def test_images_are_read_unless_in_jpeg(jpeg, tmp_path, monkeypatch):
    class Camera(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 255, (32, 32, 3), np.uint8)
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self, render_mode=None):
            pass

    spec = gymnasium.envs.registration.EnvSpec("Camera-v0", entry_point=Camera)
    monkeypatch.setitem(gymnasium.registry, "Camera-v0", spec)
    seen = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    whole = buffers([make_episode(seen, np.array([0, 1]), np.zeros(2), True)])
    options = {
        "observation_space": Camera.observation_space,
        "action_space": Camera.action_space,
        "jpeg_encoding": jpeg,
    }
    folder = by_minari("camera-v0", None, whole, monkeypatch, tmp_path, **options)
    if jpeg:
        with pytest.raises(StageError, match="camera-v0: images in JPEG are not read here; save the data set with"):
            dataset_import.read_minari_dataset(folder, "Camera-v0")
    else:
        (found,) = dataset_import.read_minari_dataset(folder, "Camera-v0").episodes
        np.testing.assert_array_equal(found.observations, seen.reshape(3, -1))


def test_ours_come_back_as_they_are(tmp_path):
    """Their actions already lie in [-1, 1]; Pendulum's own, from -2 to 2, would be halved."""
    ours = [make_episode(np.zeros((3, 3)), np.array([[-1.0], [0.5]]), np.ones(2), False)]
    dataset_files.write_offline_dataset(tmp_path / "it", "Pendulum-v1", ours, ScoreReference(0, 1), {})
    (found,) = dataset_import.read_minari_dataset(tmp_path / "it", "Pendulum-v1").episodes
    assert found.actions.tolist() == [[-1.0], [0.5]]
    assert found.total == 2
    with pytest.raises(StageError, match="it: recorded in Pendulum-v1, but environment is CartPole-v1"):
        dataset_import.read_minari_dataset(tmp_path / "it", "CartPole-v1")


def test_another_format_of_minaris_is_told(tmp_path, monkeypatch):
    folder = by_minari("hopper-v0", "Hopper-v5", buffers(WHOLE), monkeypatch, tmp_path)
    metadata = folder / dataset_files.METADATA
    metadata.write_text(metadata.read_text().replace('"hdf5"', '"arrow"'))
    with pytest.raises(StageError, match=r"hopper-v0: Minari's format arrow is not read here"):
        dataset_import.read_minari_dataset(folder, "Hopper-v5")


def test_a_data_set_that_cannot_be_downloaded_is_one_clear_line(monkeypatch):
    def refuse(name, download):
        assert download
        raise ConnectionError("no\nnetwork")

    monkeypatch.setattr("minari.load_dataset", refuse)
    with pytest.raises(StageError, match=r"^hopper/gone-v0: Minari does not give this data set: no network$"):
        dataset_import.fetch_minari_dataset("hopper/gone-v0", "Hopper-v5")
