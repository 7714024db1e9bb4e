"""Data sets that others recorded, as episodes: Minari's folders, and D4RL's files of flat arrays.

Actions are scaled to [-1, 1], as our environments take them; actions that the environment does not have are refused. A file
that cannot be read is a DataError with one line, a fault in an episode a BadEpisode; other values are not yet checked.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import mode
from typing import Any

import h5py
import numpy as np
from gymnasium import spaces
from minari.dataset.minari_storage import is_image_space
from minari.serialization import deserialize_space

from tasks.common.errors import DataError
from tasks.offline.datasets import episodes, stored
from tasks.offline.datasets.episodes import Array, BadEpisode, Episode
from tasks.offline.environments import kept, simulators

ENDS = ("terminals", "timeouts")
FLAT = ("observations", "actions", "rewards", *ENDS)


def minari(folder: Path, environment: str) -> list[Episode]:
    """The data set in `folder` (Minari's <id>, with a folder `data` in it), which must be HDF5 and of the environment.

    Any version of it: the numbers must fit, but what they mean is not known to be the same.
    """
    with _read(folder, "Minari data set"):
        metadata = dict(json.loads((folder / stored.METADATA).read_text()))
        own, spec = metadata.get("posttrain"), metadata.get("env_spec")
        recorded = own["environment"] if own else json.loads(spec)["id"] if spec else environment
        kind, count = metadata.get("data_format", "hdf5"), metadata["total_episodes"]
        if kind != "hdf5":
            raise DataError(f"{folder}: Minari's format {kind} is not read here; save the data set as hdf5")
        if simulators.unversioned(recorded) != simulators.unversioned(environment):
            raise DataError(f"{folder}: recorded in {recorded}, but environment is {environment}")
        if kept.is_another(folder, environment):
            raise DataError(f"{folder}: recorded in another environment than {environment}")
        if metadata.get("jpeg_encoding") and is_image_space(deserialize_space(metadata["observation_space"])):
            raise DataError(f"{folder}: images in JPEG are not read here; save the data set with jpeg_encoding=False")
        found = list(episodes.read(folder / stored.DATA))
    if len(found) != count:
        raise DataError(f"{folder}: {len(found)} episodes here, but {count} in metadata.json")
    return found if own else _ours(found, environment)


def remote_minari(name: str, environment: str) -> list[Episode]:
    """The data set of that id, downloaded by Minari to its own place unless it is there."""
    from minari import load_dataset

    try:
        found = load_dataset(name, download=True)
    except Exception as error:  # whatever its host's client raises
        raise DataError(f"{name}: Minari does not give this data set: {' '.join(str(error).split())}") from None
    return minari(Path(found.storage.data_path).parent, environment)


def d4rl(file: Path, environment: str) -> list[Episode]:
    """D4RL's arrays of N steps in a row, cut where `terminals` or `timeouts` say so; what follows the last end is left out.

    `next_observations` may be missing. Then the last observation of a truncated episode is unknown, so its last step is left out;
    that of a terminated one, which no method may use, repeats the observation before it. The file does not name its
    environment: only shapes are checked.
    """
    arrays = _flat(file)
    ends = [int(end) + 1 for end in np.flatnonzero(arrays["terminals"] | arrays["timeouts"])]
    if not ends:
        raise BadEpisode(None, "terminals", f"no end in {len(arrays['terminals'])} steps")
    cuts = zip([0, *ends[:-1]], ends, strict=True)
    found = [_cut(number, arrays, *cut) for number, cut in enumerate(cuts)]
    return _ours([episode for episode in found if episode is not None], environment)


@contextmanager
def _read(path: Path, kind: str) -> Iterator[None]:
    """DataError with one line for whatever h5py or JSON says of a file that is missing, torn or another."""
    try:
        yield
    except BadEpisode:
        raise
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, MemoryError) as error:
        number = getattr(error, "errno", None)
        what = os.strerror(number) if number else " ".join(str(error).split())
        raise DataError(f"{path}: no {kind}: {what}") from None


def _flat(file: Path) -> dict[str, Array]:
    """The file's arrays, all of one length; those of episode ends as bool."""
    if file.exists() and not file.is_file():  # at a pipe HDF5 would wait for ever
        raise DataError(f"{file}: no D4RL file: not a file")
    with _read(file, "D4RL file"), h5py.File(file) as source:
        missing = [name for name in FLAT if name not in source]
        if missing:
            raise BadEpisode(None, missing[0], f"missing (a D4RL file has {', '.join(FLAT)})")
        arrays = {
            name: (episodes.flags if name in ENDS else episodes.numbers)(source, None, name)
            for name in (*FLAT, "next_observations")
            if name in source
        }
    steps, seen = mode(map(len, arrays.values())), arrays["observations"].shape[1:]
    rows = {"observations": seen, "next_observations": seen, "actions": arrays["actions"].shape[1:]}
    for name, values in arrays.items():
        shape = (steps, *rows.get(name, ()))
        if values.shape != shape:
            raise BadEpisode(None, name, f"shape {shape} expected, got {values.shape}")
    return arrays


def _cut(number: int, arrays: dict[str, Array], start: int, end: int) -> Episode | None:
    """The steps `start` to `end` (excluded) as an episode, or None if nothing is left of it."""
    terminated, seen = bool(arrays["terminals"][end - 1]), arrays["observations"][start:end]
    if "next_observations" in arrays:
        after = arrays["next_observations"][start:end]
        close = np.isclose(after[:-1], seen[1:], atol=1e-4) | ~np.isfinite(seen[1:])  # the latter are reported later
        apart = ~close.all(axis=tuple(range(1, close.ndim)))
        if apart.any():
            raise BadEpisode(number, "next_observations", f"step {apart.argmax()} is not followed by what it says")
        last = after[-1:]
    elif terminated:
        last = seen[-1:]
    else:
        end, last, seen = end - 1, seen[-1:], seen[:-1]
        if end == start:
            return None
    whole = np.concatenate([seen, last])
    return episodes.episode(whole, arrays["actions"][start:end], arrays["rewards"][start:end], terminated)


def _ours(found: Sequence[Episode], environment: str) -> list[Episode]:
    """The episodes with flat observations and with actions as tasks/offline/environments/simulators.py has them."""
    env = simulators.make(environment)
    env.close()
    parts = simulators.parts(env.own_observations)
    shapes = {name: space.shape or () for name, space in parts.items()}
    ours = []
    for number, one in enumerate(found):
        episodes.check_shapes(number, one, shapes, env.own_actions.shape or ())
        given: Any = one.observations
        seen = given if isinstance(given, Mapping) else {"observations": given}
        for name, space in parts.items():
            if not isinstance(space, spaces.Box):
                _check_whole(number, name, seen[name], space)
        if refused := env.refused(one.actions):
            place, expected = refused
            got = f"got {one.actions[place]:g} at step {place[0]}"
            raise BadEpisode(number, "actions", f"{expected} expected, {got}")
        ours.append(replace(one, observations=env.flat(seen), actions=env.inward(one.actions)))
    return ours


def _check_whole(number: int, name: str, observations: Array, space: simulators.Space) -> None:
    """BadEpisode for the first observation that is not in the space; these are whole numbers, one or a vector a step."""
    with np.errstate(invalid="ignore"):
        whole = observations.astype(np.int64)
    for step, (seen, given) in enumerate(zip(whole, observations, strict=True)):
        if not (np.array_equal(seen, given) and space.contains(seen)):
            raise BadEpisode(number, name, f"one of {space} expected, got {given} at step {step}")
