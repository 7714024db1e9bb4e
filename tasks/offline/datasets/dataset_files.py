"""Data sets of transitions on disk: Minari data sets (HDF5 and JSON), with the two returns that scores are measured
between.

`path`/data has the layout in which Minari itself opens them (MINARI_DATASETS_PATH=data/transitions); metadata.json has
what we add under "posttrain". Bytes depend on the content only: Minari's own writer would add the time.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from minari.serialization import serialize_space
from numpy.typing import NDArray

from tasks.algorithms.offline.transition_tensors import Spaces, Transitions
from tasks.common.errors import DataError
from tasks.offline.datasets import episodes as storage
from tasks.offline.datasets.episodes import BadEpisode, Episode
from tasks.offline.datasets.normalized_score import ScoreReference
from tasks.offline.environments import saved_environments, simulators

DATA = Path("data/main_data.hdf5")
METADATA = Path("data/metadata.json")
MINARI = "0.5.0"  # the format's version, as Minari names it

# The returns that D4RL's scores are measured between (its infos.py); its environments are of version 2, not 5.
D4RL = {
    "HalfCheetah": ScoreReference(-280.178953, 12135.0),
    "Hopper": ScoreReference(-20.272305, 3234.3),
    "Walker2d": ScoreReference(1.629008, 4592.3),
    "Ant": ScoreReference(-325.6, 3879.7),
}


@dataclass(frozen=True)
class StoredDataset:
    """A data set: its transitions, the environment they are from, and between which returns scores are measured."""

    name: str
    transitions: Transitions
    environment: str
    spaces: Spaces
    reference: ScoreReference  # our own: a random policy's and the best known policy's
    d4rl: ScoreReference | None  # D4RL's for the environment, where it has one
    metadata: dict[str, object]  # where the data is from: source, behaviour policies' hashes, seed, ..

    def continuous(self, stage: str, method: str) -> Transitions:
        """The transitions; DataError with one line if actions are discrete, which the method cannot take."""
        if self.spaces.discrete:
            raise DataError(f"{stage}: data set {self.name}: {method} is for continuous actions, these are discrete")
        return self.transitions


def write_offline_dataset(
    path: Path, environment: str, episodes: Sequence[Episode], reference: ScoreReference, metadata: Mapping[str, object]
) -> None:
    """Check the episodes and write them as the data set named like the folder `path`; DataError with one line if
    bad.
    """
    check_dataset_episodes(path.name, environment, episodes)
    (path / DATA).parent.mkdir(parents=True, exist_ok=True)
    storage.write_episode_file(episodes, path / DATA)
    saved_environments.copy_environment_file(environment, path)
    env = simulators.make_offline_environment(environment)
    described = {
        "dataset_id": f"{path.name}-v0",
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "minari_version": MINARI,
        "total_episodes": len(episodes),
        "total_steps": sum(map(len, episodes)),
        "observation_space": serialize_space(env.observation_space),
        "action_space": serialize_space(env.action_space),
        "ref_min_score": reference.minimum,
        "ref_max_score": reference.maximum,
        "posttrain": {"environment": environment, "reference": asdict(reference), **metadata},
    }
    if (name := simulators.strip_module(environment)) in gymnasium.registry:
        with suppress(TypeError, ValueError):  # one registered as a function is no JSON
            described["env_spec"] = gymnasium.spec(name).to_json()
    env.close()
    (path / METADATA).write_text(json.dumps(described, indent=2) + "\n")


def read_offline_dataset(path: Path) -> StoredDataset:
    """The data set in the folder `path`; DataError with one line naming it, the episode and the field if it is bad."""
    try:
        metadata = dict(json.loads((path / METADATA).read_text())["posttrain"])
        environment = saved_environments.point_environment_id_to_folder(metadata.pop("environment"), path)
        reference = ScoreReference(**metadata.pop("reference"))
        episodes = list(storage.read_episode_file(path / DATA))
    except BadEpisode as error:
        raise DataError(f"data set {path.name}: {error}") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"data set {path.name}: cannot be read: {' '.join(str(error).split())}") from None
    check_dataset_episodes(path.name, environment, episodes)
    spaces = simulators.get_policy_spaces(environment)
    transitions = convert_episodes_to_transitions(episodes, spaces.discrete)
    return StoredDataset(
        path.name, transitions, environment, spaces, reference, find_d4rl_reference(environment), metadata
    )


def find_d4rl_reference(environment: str) -> ScoreReference | None:
    """D4RL's reference for the environment, whatever its version; None if there is none."""
    return D4RL.get(simulators.strip_module_and_version(environment))


def find_known_maximum_return(environment: str) -> float | None:
    """What a good return is where nothing was trained: the optimum where it is known, else D4RL's maximum."""
    optimum = simulators.find_best_possible_return(environment)
    d4rl = find_d4rl_reference(environment)
    return optimum if optimum is not None else d4rl.maximum if d4rl else None


def convert_episodes_to_transitions(episodes: Sequence[Episode], discrete: bool) -> Transitions:
    """Checked episodes, one after the other, as tensors."""
    kind = np.int64 if discrete else np.float32
    return Transitions(
        observations=_concatenate_to_tensor([episode.observations[:-1] for episode in episodes], np.float32),
        actions=_concatenate_to_tensor([episode.actions for episode in episodes], kind),
        rewards=_concatenate_to_tensor([episode.rewards for episode in episodes], np.float32),
        next_observations=_concatenate_to_tensor([episode.observations[1:] for episode in episodes], np.float32),
        terminated=_concatenate_to_tensor([episode.terminations for episode in episodes], np.bool_),
        lengths=torch.tensor([len(episode) for episode in episodes]),
    )


def _concatenate_to_tensor(parts: Sequence[NDArray[Any]], kind: type[np.generic]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(parts).astype(kind))


def check_dataset_episodes(name: str, environment: str, episodes: Sequence[Episode]) -> None:
    """DataError with one line for the first thing that is wrong with the episodes of the data set of that name."""
    try:
        spaces = simulators.get_policy_spaces(environment)
        if not episodes:
            raise DataError("no episodes")
        storage.check_episodes(episodes, spaces.observation, spaces.action, spaces.discrete)
    except (DataError, BadEpisode) as error:
        raise DataError(f"data set {name}: {error}") from None
