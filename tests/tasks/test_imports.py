from dataclasses import replace

import h5py
import numpy as np
import pytest

from tasks import episodes, imports, recordings
from tasks.episodes import BadEpisode, episode
from tasks.recordings import Reference

GENERATOR = np.random.default_rng(0)


def hopper(steps, terminated):
    """An episode of numbers: what they mean is not looked at."""
    seen = GENERATOR.normal(size=(steps + 1, 11))
    return episode(seen, GENERATOR.uniform(-1, 1, (steps, 3)), GENERATOR.normal(size=steps), terminated)


WHOLE = [hopper(4, True), hopper(3, False), hopper(5, True)]


def flat(path, whole, *, tail=0, following=True, **changes):
    """A file as D4RL has them."""
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


def equal(one, other):
    return all(np.allclose(getattr(one, field), getattr(other, field), atol=1e-6) for field in episodes.FIELDS)


def test_d4rl_with_next_observations_is_whole(tmp_path):
    found = imports.d4rl(flat(tmp_path / "it.hdf5", WHOLE), "Hopper-v5")
    assert len(found) == 3
    assert all(equal(one, other) for one, other in zip(found, WHOLE, strict=True))
    episodes.check(found, 11, 3, discrete=False)


def test_d4rl_without_them_loses_the_last_step_of_a_truncated_episode_only(tmp_path):
    found = imports.d4rl(flat(tmp_path / "it.hdf5", WHOLE, following=False), "Hopper-v5")
    assert [len(one) for one in found] == [4, 2, 5]
    cut = found[1]
    np.testing.assert_array_equal(cut.observations, WHOLE[1].observations[:3], "the true next observation")
    assert cut.truncations.tolist() == [False, True]
    assert not cut.terminations.any()
    ended = found[0]
    assert ended.terminations.tolist() == [False, False, False, True]
    np.testing.assert_array_equal(ended.observations[-1], ended.observations[-2])
    episodes.check(found, 11, 3, discrete=False)


def test_d4rl_a_truncated_episode_of_one_step_leaves_nothing(tmp_path):
    whole = [hopper(1, False), hopper(2, True)]
    found = imports.d4rl(flat(tmp_path / "it.hdf5", whole, following=False), "Hopper-v5")
    assert [len(one) for one in found] == [2]


def test_d4rl_what_follows_the_last_end_is_left_out(tmp_path):
    found = imports.d4rl(flat(tmp_path / "it.hdf5", WHOLE, tail=2), "Hopper-v5")
    assert [len(one) for one in found] == [4, 3, 5]


def test_ends_written_as_numbers(tmp_path):
    terminals = np.concatenate([one.terminations for one in WHOLE]).astype(np.float32)
    found = imports.d4rl(flat(tmp_path / "it.hdf5", WHOLE, terminals=terminals), "Hopper-v5")
    assert [bool(one.terminations[-1]) for one in found] == [True, False, True]


def test_actions_come_to_lie_in_our_box(tmp_path):
    """Pendulum takes -2 to 2; what lies beyond is what the environment would have made of it."""
    whole = [episode(np.zeros((4, 3)), np.array([[-2.0], [1.0], [2.5]]), np.zeros(3), True)]
    (found,) = imports.d4rl(flat(tmp_path / "it.hdf5", whole), "Pendulum-v1")
    assert found.actions[:, 0].tolist() == [-1, 0.5, 1]


STEPS = sum(map(len, WHOLE))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"timeouts": None}, "episode 0: timeouts: missing"),
        ({"terminals": None}, "episode 0: terminals: missing"),
        (
            {"rewards": np.zeros(STEPS - 1)},
            f"episode 0: rewards: {STEPS} steps expected as in observations, got {STEPS - 1}",
        ),
        (
            {"terminals": np.zeros(STEPS, bool), "timeouts": np.zeros(STEPS, bool)},
            f"episode 0: terminals: no end in {STEPS} steps",
        ),
        (
            {"next_observations": np.zeros((STEPS, 11))},
            "episode 0: next_observations: step 0 is not followed by what it says",
        ),
    ],
)
def test_bad_d4rl_files(changes, told, tmp_path):
    with pytest.raises(BadEpisode, match=f"^{told}"):
        imports.d4rl(flat(tmp_path / "it.hdf5", WHOLE, **changes), "Hopper-v5")


def test_no_file_at_all(tmp_path):
    with pytest.raises(SystemExit, match=r"it.hdf5: no D4RL file: .*No such file"):
        imports.d4rl(tmp_path / "it.hdf5", "Hopper-v5")
    (tmp_path / "it.hdf5").write_text("words")
    with pytest.raises(SystemExit, match=r"it.hdf5: no D4RL file: .*file signature not found"):
        imports.d4rl(tmp_path / "it.hdf5", "Hopper-v5")
    with pytest.raises(SystemExit, match=r"it: no Minari data set: .*No such file"):
        imports.minari(tmp_path / "it", "Hopper-v5")


def by_minari(name, env, buffers, monkeypatch, root):
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
    )
    return root / name


def buffers(whole):
    return [{field: list(getattr(one, field)) for field in episodes.FIELDS} for one in whole]


def test_minari_is_read_as_minari_wrote_it(tmp_path, monkeypatch):
    """One observation more than actions: the true last one, where others shift observations against actions."""
    folder = by_minari("hopper/test-v0", "Hopper-v5", buffers(WHOLE), monkeypatch, tmp_path)
    found = imports.minari(folder, "Hopper-v5")
    assert all(equal(one, other) for one, other in zip(found, WHOLE, strict=True))
    assert equal(imports.remote_minari("hopper/test-v0", "Hopper-v5")[2], WHOLE[2]), "found where Minari keeps its own"


def test_minari_with_numbers_for_observations(tmp_path, monkeypatch):
    lake = [episode(np.array([0, 4, 8, 9]), np.array([1, 1, 2]), np.zeros(3), False)]
    folder = by_minari("lake-v0", "FrozenLake-v1", buffers(lake), monkeypatch, tmp_path)
    (found,) = imports.minari(folder, "FrozenLake-v1")
    assert found.observations.argmax(1).tolist() == [0, 4, 8, 9]
    episodes.check([found], 16, 4, discrete=True)


def test_minari_without_an_end_is_told(tmp_path, monkeypatch):
    endless = [replace(WHOLE[0], terminations=WHOLE[0].terminations & False)]
    folder = by_minari("hopper-v0", "Hopper-v5", buffers(endless), monkeypatch, tmp_path)
    with pytest.raises(SystemExit, match="data set it: episode 0: terminations: the last step is neither"):
        recordings.write(tmp_path / "it", "Hopper-v5", imports.minari(folder, "Hopper-v5"), Reference(0, 1), {})


def test_another_format_of_minaris_is_told(tmp_path, monkeypatch):
    folder = by_minari("hopper-v0", "Hopper-v5", buffers(WHOLE), monkeypatch, tmp_path)
    metadata = folder / recordings.METADATA
    metadata.write_text(metadata.read_text().replace('"hdf5"', '"arrow"'))
    with pytest.raises(SystemExit, match=r"hopper-v0: Minari's format arrow is not read here"):
        imports.minari(folder, "Hopper-v5")


def test_a_data_set_that_cannot_be_downloaded_is_one_clear_line(monkeypatch):
    def refuse(name, download):
        assert download
        raise ConnectionError("no\nnetwork")

    monkeypatch.setattr("minari.load_dataset", refuse)
    with pytest.raises(SystemExit, match=r"^hopper/gone-v0: Minari does not give this data set: no network$"):
        imports.remote_minari("hopper/gone-v0", "Hopper-v5")
