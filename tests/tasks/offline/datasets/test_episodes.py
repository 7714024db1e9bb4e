from dataclasses import replace

import h5py
import numpy as np
import pytest

from tasks.offline.datasets import episodes
from tasks.offline.datasets.episodes import (
    BadEpisode,
    Episode,
    check_episodes,
    make_episode,
    read_episode_file,
    write_episode_file,
)


def discrete(steps=3, terminated=True):
    generator = np.random.default_rng(steps)
    return make_episode(generator.normal(size=(steps + 1, 2)), np.arange(steps) % 2, np.ones(steps), terminated)


def continuous(steps=3):
    generator = np.random.default_rng(steps)
    return make_episode(
        generator.normal(size=(steps + 1, 2)), generator.uniform(-1, 1, (steps, 2)), np.ones(steps), False
    )


def test_an_episode_ends_at_its_last_step():
    ended, cut = discrete(terminated=True), discrete(terminated=False)
    assert (ended.terminations.tolist(), ended.truncations.tolist()) == ([False, False, True], [False] * 3)
    assert (cut.terminations.tolist(), cut.truncations.tolist()) == ([False] * 3, [False, False, True])
    assert len(ended) == 3


def test_written_and_read(tmp_path):
    written = [discrete(3), discrete(1), discrete(12, terminated=False)]
    write_episode_file(written, tmp_path / "it.hdf5")
    found = list(read_episode_file(tmp_path / "it.hdf5"))
    assert [one.total for one in found] == [3, 1, 12]
    for one, other in zip(written, found, strict=True):
        for field in episodes.FIELDS:
            np.testing.assert_allclose(getattr(one, field), getattr(other, field), rtol=1e-6)
    assert found[0].observations.dtype == np.float32
    check_episodes(found, observation=2, action=2, discrete=True)


def test_the_order_is_kept_beyond_ten(tmp_path):
    write_episode_file([discrete(steps) for steps in range(1, 15)], tmp_path / "it.hdf5")
    assert [len(one) for one in read_episode_file(tmp_path / "it.hdf5")] == list(range(1, 15))


def altered(place, field, value):
    """A sound episode with one value changed."""
    one = discrete() if place == "discrete" else continuous()
    values = getattr(one, field).copy()
    if callable(value):
        return replace(one, **{field: value(values)})
    values[(1,) + (0,) * (values.ndim - 1)] = value
    return replace(one, **{field: values})


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (altered("discrete", "observations", NAN), "observations: nan at step 1"),
        (altered("continuous", "actions", NAN), "actions: nan at step 1"),
        (altered("discrete", "rewards", INF), "rewards: inf at step 1"),
        (altered("discrete", "observations", lambda v: v[:-1]), r"observations: shape \(4, 2\) expected, got \(3, 2\)"),
        (
            altered("discrete", "observations", lambda v: v[:, :1]),
            r"observations: shape \(4, 2\) expected, got \(4, 1\)",
        ),
        (altered("discrete", "actions", lambda v: v[:-1]), r"actions: shape \(3,\) expected, got \(2,\)"),
        (continuous(), r"actions: shape \(3,\) expected, got \(3, 2\)"),
        (altered("discrete", "terminations", lambda v: v[:1]), r"terminations: shape \(3,\) expected, got \(1,\)"),
        (altered("discrete", "actions", 2), "actions: one of 0 to 1 expected, got 2 at step 1"),
        (altered("discrete", "actions", -1), "actions: one of 0 to 1 expected, got -1 at step 1"),
        (altered("discrete", "terminations", lambda v: v & False), "terminations: the last step is neither"),
        (altered("discrete", "terminations", True), "terminations: an end at step 1, but 3 steps"),
        (altered("discrete", "truncations", True), "truncations: an end at step 1, but 3 steps"),
        (altered("discrete", "rewards", lambda v: v[:-1]), r"rewards: shape \(3,\) expected, got \(2,\)"),
        (altered("discrete", "observations", 1e39), r"observations: 1e\+39 at step 1"),
        (replace(discrete(), total=4.0), "rewards: they sum to 3, but the return is 4"),
        (make_episode(np.zeros((1, 2)), np.zeros(0, int), np.zeros(0), True), "rewards: no steps"),
    ],
)
def test_what_is_wrong_is_told_by_episode_and_field(bad, told):
    sizes = {"observation": 2, "action": 2, "discrete": "actions: nan" not in told}
    sound = discrete() if sizes["discrete"] else continuous()
    check_episodes([sound], **sizes)
    with pytest.raises(BadEpisode, match=f"^episode 1: {told}") as found:
        check_episodes([sound, bad], **sizes)
    assert "\n" not in str(found.value)


def test_a_return_is_compared_as_closely_as_float32_allows():
    """Rewards of +-1000 add up to 2, but to 2.01 in another order: no reward of that size is missing."""
    near = make_episode(np.zeros((5, 2)), np.zeros(4, int), np.array([1000.0, -1000, 1000, -998]), True)
    check_episodes([replace(near, total=2.01)], 2, 2, discrete=True)
    with pytest.raises(BadEpisode, match="episode 0: rewards: they sum to 2, but the return is 3"):
        check_episodes([replace(near, total=3.0)], 2, 2, discrete=True)


def test_actions_beyond_the_box():
    check_episodes([altered("continuous", "actions", 1.0)], 2, 2, discrete=False)
    with pytest.raises(BadEpisode, match=r"episode 0: actions: a number within \[-1, 1\] expected, got 1.5 at step 1"):
        check_episodes([altered("continuous", "actions", 1.5)], 2, 2, discrete=False)


@pytest.mark.parametrize("field", episodes.FIELDS)
def test_a_missing_field(field, tmp_path):
    write_episode_file([discrete(), discrete()], tmp_path / "it.hdf5")
    with h5py.File(tmp_path / "it.hdf5", "a") as file:
        del file["episode_1"][field]
    with pytest.raises(BadEpisode, match=f"episode 1: {field}: missing"):
        list(read_episode_file(tmp_path / "it.hdf5"))


def test_a_missing_episode_and_words_for_numbers(tmp_path):
    write_episode_file([discrete(), discrete()], tmp_path / "it.hdf5")
    with h5py.File(tmp_path / "it.hdf5", "a") as file:
        del file["episode_1"]["rewards"]
        file["episode_1"]["rewards"] = [b"one", b"two", b"three"]
    with pytest.raises(BadEpisode, match=r"episode 1: rewards: numbers expected, got object"):
        list(read_episode_file(tmp_path / "it.hdf5"))
    with h5py.File(tmp_path / "it.hdf5", "a") as file:
        file.move("episode_1", "episode_7")
    with pytest.raises(BadEpisode, match="episode 1: group: missing, of 2 episodes"):
        list(read_episode_file(tmp_path / "it.hdf5"))


def test_the_default_episode_has_no_return_noted():
    assert Episode(*(np.zeros(1),) * 5).total is None
