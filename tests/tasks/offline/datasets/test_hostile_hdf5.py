"""HDF5 files from strangers: links out of the file are refused, and a small file cannot become a large array."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tasks.common.errors import StageError
from tasks.offline.datasets import dataset_import, episodes
from tasks.offline.datasets.episodes import BadEpisode
from tests.tasks.foreign import WHOLE
from tests.tasks.offline.datasets.test_imported_d4rl import flat

LINK = "a link, which is not followed; expected the data itself"
AWAY = "its values are in another file, which is not read; expected the data itself"


def external(group: h5py.Group, field: str, folder: Path) -> None:
    with h5py.File(folder / "other.hdf5", "w") as other:
        other["secret"] = group[field][()]
    del group[field]
    group[field] = h5py.ExternalLink(str(folder / "other.hdf5"), "secret")


def a_pipe(group: h5py.Group, field: str, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    del group[field]
    group[field] = h5py.ExternalLink(str(folder / "pipe"), "secret")


def soft(group: h5py.Group, field: str, folder: Path) -> None:
    del group[field]
    group[field] = h5py.SoftLink("/elsewhere")


def raw_bytes(group: h5py.Group, field: str, folder: Path) -> None:
    values = group[field][()]
    (folder / "passwd").write_bytes(np.ascontiguousarray(values).tobytes())
    del group[field]
    group.create_dataset(field, values.shape, values.dtype, external=[(str(folder / "passwd"), 0, h5py.h5f.UNLIMITED)])


def virtual(group: h5py.Group, field: str, folder: Path) -> None:
    with h5py.File(folder / "other.hdf5", "w") as other:
        other["secret"] = group[field][()]
        layout = h5py.VirtualLayout(group[field].shape, group[field].dtype)
        layout[...] = h5py.VirtualSource(other["secret"])
    del group[field]
    group.create_virtual_dataset(field, layout)


def bomb(group: h5py.Group, field: str, folder: Path) -> None:
    del group[field]
    group.create_dataset(field, (10**11,), "f4", chunks=(10**6,))


FAULTS: dict[Callable[[h5py.Group, str, Path], None], str] = {
    external: LINK,
    a_pipe: LINK,
    soft: LINK,
    raw_bytes: AWAY,
    virtual: AWAY,
    bomb: "400000000000 bytes are said to be in 0",
}


@pytest.mark.parametrize("field", ["rewards", "observations"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_d4rl(tmp_path: Path, fault: Callable[..., None], field: str) -> None:
    file = flat(tmp_path / "it.hdf5", WHOLE)
    with h5py.File(file, "a") as target:
        fault(target, field, tmp_path)
    with pytest.raises(BadEpisode, match=rf"^{field}: {FAULTS[fault]}$"):
        dataset_import.read_d4rl_dataset(file, "Hopper-v5")


@pytest.mark.parametrize("field", ["rewards", "observations", "truncations"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_episodes(tmp_path: Path, fault: Callable[..., None], field: str) -> None:
    file = tmp_path / "it.hdf5"
    episodes.write_episode_file(WHOLE, file)
    with h5py.File(file, "a") as target:
        fault(target["episode_1"], field, tmp_path)
    with pytest.raises(BadEpisode, match=rf"^episode 1: {field}: {FAULTS[fault]}$"):
        list(episodes.read_episode_file(file))


def test_a_whole_episode_elsewhere(tmp_path: Path) -> None:
    file, other = tmp_path / "it.hdf5", tmp_path / "other.hdf5"
    episodes.write_episode_file(WHOLE, file)
    episodes.write_episode_file(WHOLE, other)
    with h5py.File(file, "a") as target:
        del target["episode_1"]
        target["episode_1"] = h5py.ExternalLink(str(other), "episode_1")
    with pytest.raises(BadEpisode, match=rf"^episode 1: group: {LINK}$"):
        list(episodes.read_episode_file(file))


def test_parts_of_an_observation_elsewhere(tmp_path: Path) -> None:
    """Such parts are not found, and the error names the missing parts of the environment's observation."""
    file = tmp_path / "it.hdf5"
    episodes.write_episode_file(WHOLE[:1], file)
    with h5py.File(file, "a") as target:
        group: Any = target["episode_0"]
        seen = group["observations"][()]
        del group["observations"]
        group.create_group("observations")["here"] = seen
        group["observations"]["away"] = h5py.ExternalLink(str(tmp_path / "other.hdf5"), "x")
    [found] = episodes.read_episode_file(file)
    assert isinstance(found.observations, dict)
    assert list(found.observations) == ["observations/here"]


def test_a_file_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "it.hdf5")
    with pytest.raises(StageError, match=r"no D4RL file: not a file$"):
        dataset_import.read_d4rl_dataset(tmp_path / "it.hdf5", "Hopper-v5")
    with pytest.raises(OSError, match="is not a file"):
        list(episodes.read_episode_file(tmp_path / "it.hdf5"))


def test_what_is_packed_well_is_read(tmp_path: Path) -> None:
    """Ten million equal rewards, which gzip compresses to a thousandth of their size."""
    file = tmp_path / "it.hdf5"
    with h5py.File(file, "w") as target:
        target.create_dataset("rewards", data=np.ones(10**7, np.float32), compression="gzip", compression_opts=9)
    with h5py.File(file) as source:
        assert episodes.read_number_array(source, None, "rewards").sum() == 10**7
