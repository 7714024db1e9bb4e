"""Data sets that others recorded, as episodes: Minari's folders, and D4RL's files of flat arrays.

A Minari data set must be of the environment that it was recorded in (origin.py). Actions are scaled to [-1, 1], as our
environments take them; actions that the environment does not have are refused. A file that cannot be read is a
DataError with one line, a fault in an episode a BadEpisode; other values are not yet checked.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mode
from typing import Any

import h5py
import numpy as np
from gymnasium import spaces
from minari.dataset.minari_storage import is_image_space
from minari.serialization import deserialize_space

from tasks.common.errors import DataError
from tasks.offline.configs.wrappers import BETWEEN
from tasks.offline.datasets import dataset_files, episodes, origin
from tasks.offline.datasets.episodes import Array, BadEpisode, Episode
from tasks.offline.datasets.normalized_score import ScoreReference
from tasks.offline.environments import saved_environments, simulators

ENDS = ("terminals", "timeouts")
FLAT = ("observations", "actions", "rewards", "terminals")  # what a file must have
KNOWN = (*FLAT, "timeouts", "next_observations")


@dataclass(frozen=True)
class Imported:
    """Episodes, what has to be said of how they were read, a line each, and what the data set itself says."""

    episodes: list[Episode]
    notes: tuple[str, ...] = ()
    left_out: int = 0  # steps
    reference: ScoreReference | None = None  # the returns that its scores are measured between


def read_minari_dataset(folder: Path, environment: str) -> Imported:
    """The data set in `folder` (Minari's <id>, with a folder `data` in it), which must be HDF5 and of the
    environment.
    """
    metadata, notes = read_minari_metadata(folder, environment)
    with _convert_read_errors(folder, "Minari data set"):
        recorded = list(episodes.read_episode_file(folder / dataset_files.DATA))
        count = metadata["total_episodes"]
    if len(recorded) != count:
        raise DataError(f"{folder}: {len(recorded)} episodes here, but {count} in metadata.json")
    reference = _parse_reference_scores(folder, metadata)
    return Imported(
        recorded if metadata.get("posttrain") else _adapt_to_environment(recorded, environment),
        tuple(notes),
        0,
        reference,
    )


def read_minari_metadata(folder: Path, environment: str) -> tuple[dict[str, Any], list[str]]:
    """Its metadata, and notes on what of it could not be compared; DataError with one line if it is not of the
    environment, or of no kind read here.
    """
    with _convert_read_errors(folder, "Minari data set"):
        metadata = dict(json.loads((folder / dataset_files.METADATA).read_text()))
        kind = metadata.get("data_format", "hdf5")
        if kind != "hdf5":
            raise DataError(f"{folder}: Minari's format {kind} is not read here; save the data set as hdf5")
        if saved_environments.is_from_other_environment(folder, environment):
            raise DataError(f"{folder}: recorded in another environment than {environment}")
        try:
            lacking = origin.check_origin_and_list_missing(metadata, environment)
        except DataError as error:
            raise DataError(f"{folder}: {error}") from None
        if metadata.get("jpeg_encoding") and is_image_space(deserialize_space(metadata["observation_space"])):
            raise DataError(f"{folder}: images in JPEG are not read here; save the data set with jpeg_encoding=False")
    notes = [f"its metadata.json has no {' and no '.join(lacking)}: not compared with {environment}"] if lacking else []
    return metadata, notes


def _parse_reference_scores(folder: Path, metadata: Mapping[str, Any]) -> ScoreReference | None:
    """Minari's two reference scores; None if it has neither."""
    ends = [metadata.get(name) for name in ("ref_min_score", "ref_max_score")]
    if ends == [None, None]:
        return None
    numbers = [end for end in ends if isinstance(end, int | float) and math.isfinite(end)]
    if len(numbers) < 2 or numbers[0] >= numbers[1]:
        raise DataError(
            f"{folder}: ref_min_score below ref_max_score expected in metadata.json, got {ends[0]} and {ends[1]}"
        )
    return ScoreReference(float(numbers[0]), float(numbers[1]))


def find_downloaded_minari_dataset(name: str) -> Path | None:
    """Where Minari keeps the data set of that id; None if it has not downloaded it."""
    from minari import load_dataset

    try:
        return Path(load_dataset(name).storage.data_path).parent
    except FileNotFoundError:
        return None
    except Exception as error:  # of a bad id, or of one that is torn
        what = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{name}: Minari does not give this data set: {what}") from None


def fetch_minari_dataset(name: str, environment: str) -> Imported:
    """The data set of that id, downloaded by Minari to its own place unless it is there."""
    from minari import load_dataset

    try:
        dataset = load_dataset(name, download=True)
    except Exception as error:  # whatever its host's client raises
        raise DataError(f"{name}: Minari does not give this data set: {' '.join(str(error).split())}") from None
    return read_minari_dataset(Path(dataset.storage.data_path).parent, environment)


def read_d4rl_dataset(file: Path, environment: str) -> Imported:
    """D4RL's arrays of N steps in a row, cut where `terminals` or `timeouts` say so; what follows the last end is left
    out.

    Without `timeouts`, or with none that is set, an episode is cut at the environment's step limit, as D4RL's own
    reader does (its `qlearning_dataset`), and at the file's end. `next_observations` may be missing. Then the last
    observation of a truncated episode is unknown, so its last step is left out; that of a terminated one, which no
    method may use, repeats the observation before it. The file does not name its environment: only shapes and ranges
    are checked.
    """
    arrays, unread = _read_flat_arrays(file)
    ends, notes = _find_episode_ends(arrays, environment)
    count = len(arrays["terminals"])
    if not ends:
        raise BadEpisode(None, "terminals", f"no end in {count} steps")
    cuts = zip([0, *ends[:-1]], ends, strict=True)
    recorded = [
        episode for number, cut in enumerate(cuts) if (episode := _cut_episode(number, arrays, *cut)) is not None
    ]
    left_out = count - sum(map(len, recorded))
    if left_out:
        behind = count - ends[-1]
        why = (
            f"{behind} behind the last end, {left_out - behind} at a cut, where the observation that follows is "
            "not in the file"
        )
        notes.append(f"{left_out} of {count} steps are left out: {why}")
    if unread:
        notes.append(f"not read: {', '.join(unread)}")
    notes.append("a D4RL file names no environment: shapes and ranges alone were compared")
    return Imported(_adapt_to_environment(recorded, environment), tuple(notes), left_out)


def _find_episode_ends(arrays: Mapping[str, Array], environment: str) -> tuple[list[int], list[str]]:
    """Where each episode ends (the number of the step behind it), and what has to be said of that."""
    steps = len(arrays["terminals"])
    limit = simulators.find_step_limit(environment)
    if "timeouts" in arrays:
        ends = [int(end) + 1 for end in np.flatnonzero(arrays["terminals"] | arrays["timeouts"])]
        lengths = np.diff([0, *ends])
        longer = 0 if limit is None else int((lengths > limit).sum())
        if not longer:
            return ends, []
        if arrays["timeouts"].any():
            return ends, [f"{longer} of {len(ends)} episodes are longer than {limit} steps, the limit of {environment}"]
    elif limit is None:
        named = f'"{environment}{BETWEEN}TimeLimit {{max_episode_steps: 1000}}"'
        raise BadEpisode(
            None,
            "timeouts",
            f"missing, and {environment} has no step limit to cut at; expected an id with the data's, such as {named}",
        )
    assert limit is not None, "of a longer episode, or refused"
    ends = list[int]()
    start = 0
    for stop in [*(np.flatnonzero(arrays["terminals"]) + 1).tolist(), steps]:
        ends += [*range(start + limit, stop, limit), *([stop] if stop > start else [])]
        start = stop
    missing = "no timeout is set" if "timeouts" in arrays else "no timeouts"
    return ends, [f"{missing}: cut after {limit} steps, the limit of {environment}, and at the end of the file"]


@contextmanager
def _convert_read_errors(path: Path, kind: str) -> Iterator[None]:
    """DataError with one line for whatever h5py or JSON says of a file that is missing, torn or another."""
    try:
        yield
    except BadEpisode:
        raise
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, MemoryError) as error:
        number = getattr(error, "errno", None)
        what = os.strerror(number) if number else " ".join(str(error).split())
        raise DataError(f"{path}: no {kind}: {what}") from None


def _read_flat_arrays(file: Path) -> tuple[dict[str, Array], list[str]]:
    """The file's arrays, all of one length, those of episode ends as bool; and the names of other arrays in it."""
    if file.exists() and not file.is_file():  # at a pipe HDF5 would wait for ever
        raise DataError(f"{file}: no D4RL file: not a file")
    with _convert_read_errors(file, "D4RL file"), h5py.File(file) as source:
        missing = [name for name in FLAT if name not in source]
        if missing:
            raise BadEpisode(None, missing[0], f"missing (a D4RL file has {', '.join(FLAT)})")
        arrays = {
            name: (episodes.read_flag_array if name in ENDS else episodes.read_number_array)(source, None, name)
            for name in KNOWN
            if name in source
        }
        unread = [name for name, part in source.items() if name not in KNOWN and isinstance(part, h5py.Dataset)]
    steps = mode(map(len, arrays.values()))
    seen = arrays["observations"].shape[1:]
    rows = {"observations": seen, "next_observations": seen, "actions": arrays["actions"].shape[1:]}
    for name, values in arrays.items():
        shape = (steps, *rows.get(name, ()))
        if values.shape != shape:
            raise BadEpisode(None, name, f"shape {shape} expected, got {values.shape}")
    return arrays, unread


def _cut_episode(number: int, arrays: dict[str, Array], start: int, end: int) -> Episode | None:
    """The steps `start` to `end` (excluded) as an episode, or None if nothing is left of it."""
    terminated = bool(arrays["terminals"][end - 1])
    seen = arrays["observations"][start:end]
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
        end = end - 1
        last = seen[-1:]
        seen = seen[:-1]
        if end == start:
            return None
    whole = np.concatenate([seen, last])
    return episodes.make_episode(whole, arrays["actions"][start:end], arrays["rewards"][start:end], terminated)


def _adapt_to_environment(recorded: Sequence[Episode], environment: str) -> list[Episode]:
    """The episodes with flat observations and with actions as tasks/offline/environments/simulators.py has them."""
    env = simulators.make_offline_environment(environment)
    env.close()
    parts = simulators.split_space_into_parts(env.own_observations)
    shapes = {name: space.shape or () for name, space in parts.items()}
    ours = []
    for number, episode in enumerate(recorded):
        episodes.check_episode_shapes(number, episode, shapes, env.own_actions.shape or ())
        observations: Any = episode.observations
        seen = observations if isinstance(observations, Mapping) else {"observations": observations}
        for name, space in parts.items():
            if not isinstance(space, spaces.Box):
                _check_discrete_observations(number, name, seen[name], space)
        if refused := env.find_first_refused_action(episode.actions):
            index, expected = refused
            got = f"got {episode.actions[index]:g} at step {index[0]}"
            raise BadEpisode(number, "actions", f"{expected} expected, {got}")
        ours.append(
            replace(
                episode,
                observations=env.flatten_recorded_observations(seen),
                actions=env.scale_recorded_actions(episode.actions),
            )
        )
    return ours


def _check_discrete_observations(number: int, name: str, observations: Array, space: simulators.Space) -> None:
    """BadEpisode for the first observation that is not in the space; these are whole numbers, one or a vector a
    step.
    """
    with np.errstate(invalid="ignore"):
        whole = observations.astype(np.int64)
    for step, (seen, observation) in enumerate(zip(whole, observations, strict=True)):
        if not (np.array_equal(seen, observation) and space.contains(seen)):
            raise BadEpisode(number, name, f"one of {space} expected, got {observation} at step {step}")
