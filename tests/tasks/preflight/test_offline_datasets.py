"""Data sets that an offline run would import, and environments that it would make, before it begins."""

import json

import gymnasium
import h5py
import pytest

from tasks.common.errors import StageError
from tasks.offline.configs.transitions import TransitionsConfig
from tasks.offline.datasets import dataset_files
from tasks.preflight import offline_datasets
from tests.tasks.offline.worlds import BEHAVIOUR, NONE, record


@pytest.fixture
def said(tmp_path, monkeypatch):
    """The lines on one data set of the environment `id`, imported from walks/, which `change` has changed; other
    settings too.
    """
    monkeypatch.chdir(tmp_path)

    def lines(change=None, steps=0, **settings):
        record(tmp_path / "raw/walks", "CartPole-v1", 2)
        metadata = tmp_path / "raw/walks" / dataset_files.METADATA
        described = json.loads(metadata.read_text())
        del described["posttrain"]
        metadata.write_text(json.dumps(described | (change or {})))
        training = NONE.model_copy(update={"id": settings.pop("id", "CartPole-v1"), "steps": steps})
        behaviour = BEHAVIOUR.model_copy(update={"environments": {"it": training}})
        one = {"environment": "it", "source": "minari", "location": "walks", "steps": None, "episodes": None}
        config = {"datasets": {"walks": one}, "references": {}, "path": "raw", "seed": 0} | settings
        stages = {"transitions@walks", "behaviour@it"}
        return [
            *offline_datasets.iterate_offline_dataset_checks(
                behaviour, TransitionsConfig.model_validate(config), stages
            )
        ]

    return lines


PLAIN = {"observation_space": None, "action_space": None}  # what ours has is not the environment's own


def test_what_is_there_and_what_is_not_said(said):
    first, second = said(PLAIN)
    assert first.startswith("transitions: 2 episodes of ")
    assert second.endswith(
        "walks: its metadata.json has no observation_space and no action_space: not compared with CartPole-v1"
    )


def test_another_environment_is_found_before_anything_runs(said):
    with pytest.raises(StageError, match=r"^data set walks: raw/walks: recorded in CartPole-v1, but environment is "):
        said(PLAIN, id="CartPole-v1 {max_episode_steps: 20}")


def test_bad_values_are_found_before_anything_runs(said, monkeypatch):
    written = dataset_files.write_offline_dataset

    def without_an_end(path, environment, episodes, *rest):
        written(path, environment, episodes, *rest)
        with h5py.File(path / dataset_files.DATA, "a") as file:
            file["episode_1/terminations"][...] = False

    monkeypatch.setattr(dataset_files, "write_offline_dataset", without_an_end)
    with pytest.raises(StageError, match=r"^data set walks: episode 1: terminations: the last step is neither"):
        said(PLAIN)


def test_a_remote_one_is_read_where_it_was_downloaded_before(said, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "raw"))
    remote = {"environment": "it", "source": "minari-remote", "steps": None, "episodes": None}
    (line,) = said(PLAIN, datasets={"walks": remote | {"location": "other-v0"}})
    assert line == "transitions: data set walks: other-v0 is not here yet; it is read once Minari has downloaded it"
    (tmp_path / "raw/walks-v0").symlink_to(tmp_path / "raw/walks")
    here = {"walks": remote | {"location": "walks-v0"}}
    with pytest.raises(StageError, match=r"walks-v0: recorded with observation_space Box\(-inf, inf"):
        said(datasets=here)


def test_somebody_must_say_what_a_good_return_is(said):
    none = PLAIN | {"ref_min_score": None, "ref_max_score": None}
    with pytest.raises(StageError, match=r"^data set walks: no good return is known: .* transitions.references.it$"):
        said(none)
    assert said(none, steps=100)
    assert said(none, references={"it": {"minimum": 0, "maximum": 500}})
    for wrong in ((1, 1), (0, None), (float("nan"), 1), ("0", "1")):
        ends = dict(zip(("ref_min_score", "ref_max_score"), wrong, strict=True))
        with pytest.raises(StageError, match=r"ref_min_score below ref_max_score expected in metadata.json, got "):
            said(PLAIN | ends)


def test_an_environment_that_does_not_suit_is_found_before_anything_runs(monkeypatch):
    class Wordy(gymnasium.Env):
        observation_space = gymnasium.spaces.Dict(seen=gymnasium.spaces.Box(0, 1, (2,)), said=gymnasium.spaces.Text(3))
        action_space = gymnasium.spaces.Discrete(2)

    spec = gymnasium.envs.registration.EnvSpec("Said-v0", entry_point=Wordy)
    monkeypatch.setitem(gymnasium.registry, "Said-v0", spec)
    behaviour = BEHAVIOUR.model_copy(update={"environments": {"it": NONE.model_copy(update={"id": "Said-v0"})}})
    config = TransitionsConfig(datasets={}, references={}, path="raw", seed=0)
    with pytest.raises(
        StageError, match=r"have said, which is no numbers; .*FilterObservation {filter_keys: \[seen\]}"
    ):
        list(offline_datasets.iterate_offline_dataset_checks(behaviour, config, {"behaviour@it"}))
    assert list(offline_datasets.iterate_offline_dataset_checks(behaviour, config, {"behaviour@other"})) == []


def test_what_a_stage_makes_is_not_there_yet(said):
    """An environment that a folder will hold, and its data."""
    assert said(PLAIN, id="tasks.agents.environments.as_gymnasium:data/agent_episodes/rooms") == []
