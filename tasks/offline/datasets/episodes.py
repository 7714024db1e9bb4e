"""Whole episodes as arrays, the HDF5 file they are kept in, and everything that can be wrong with them.

The file is Minari's: a group `episode_<n>` each, with one observation more than actions, the last one being what was
seen after the last action, truncated or not. Ours also has each episode's `return`, so that lost or altered rewards
show. A file of short episodes is tens of thousands of small arrays, so that they are read by HDF5's own calls.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mode
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5g, h5l, h5s, h5t
from numpy.typing import NDArray

ENDS = ("terminations", "truncations")
FIELDS = ("observations", "actions", "rewards", *ENDS)
MOST_PACKED = 1100  # bytes of values for a byte in the file, at most; gzip reaches 1,032

Array = NDArray[Any]  # of numbers of any type
Known = dict[bytes, tuple[np.dtype[Any], h5t.TypeID] | None]  # HDF5's types as numpy's and in memory; None: no numbers


@dataclass(frozen=True)
class Episode:
    """T steps. `total` is the return that was recorded with the episode, if there is one.

    In data that others recorded, an observation may have parts (of a Dict or Tuple): then `observations` maps their
    names to arrays.
    """

    observations: NDArray[np.floating]  # (T + 1, O)
    actions: NDArray[np.floating] | NDArray[np.integer]  # (T, A) continuous, or (T,) discrete
    rewards: NDArray[np.floating]  # (T,)
    terminations: NDArray[np.bool_]  # (T,)
    truncations: NDArray[np.bool_]  # (T,)
    total: float | None = None

    def __len__(self) -> int:
        return len(self.rewards)


def make_episode(
    observations: Sequence[Any] | Array,
    actions: Sequence[Any] | Array,
    rewards: Sequence[float] | Array,
    terminated: bool,
) -> Episode:
    """What was seen, done and earned, step by step, as an episode that was terminated or else truncated at its end."""
    last = np.arange(len(rewards)) == len(rewards) - 1
    return Episode(
        np.asarray(observations), np.asarray(actions), np.asarray(rewards), last & terminated, last & (not terminated)
    )


class BadEpisode(ValueError):
    """What is wrong with a field of an episode (None: of all episodes in a row), in one line."""

    def __init__(self, number: int | None, field: str, what: str) -> None:
        super().__init__(f"{field}: {what}" if number is None else f"episode {number}: {field}: {what}")


def write_episode_file(episodes: Sequence[Episode], file: Path) -> None:
    """The episodes as one HDF5 file; the same episodes give the same bytes."""
    with h5py.File(file, "w", track_order=True) as target:
        for number, episode in enumerate(episodes):
            group = target.create_group(f"episode_{number}", track_order=True)
            group.attrs["id"] = number
            group.attrs["total_steps"] = len(episode)
            group.attrs["return"] = float(episode.rewards.sum(dtype=np.float64))
            for field in FIELDS:
                values = getattr(episode, field)
                kept = values.astype(np.float32) if values.dtype.kind == "f" else values
                group.create_dataset(field, data=kept, track_times=False)


def read_episode_file(file: Path) -> Iterator[Episode]:
    """The file's episodes in order, unchecked but for fields that are missing or are no arrays of numbers
    (BadEpisode).
    """
    type_cache: Known = {}
    if file.exists() and not file.is_file():  # at a pipe HDF5 would wait for ever
        raise OSError(f"{file.name} is not a file")
    with h5py.File(file) as source:
        for number in range(len(source)):
            name = b"episode_%d" % number
            _check_is_no_link(source.id, name, number, "group")
            try:
                group = h5g.open(source.id, name)
            except (KeyError, ValueError):
                raise BadEpisode(number, "group", f"missing, of {len(source)} episodes") from None
            values = {field: _read_field(group, number, field, type_cache) for field in FIELDS}
            yield Episode(**values, total=_read_total_return(group, number))


def _read_field(group: h5g.GroupID, number: int, field: str, type_cache: Known) -> Any:
    """One array of an episode, or for observations with parts one of each."""
    values = _read_plain_array(group, number, field, type_cache)
    if values is not None and (field not in ENDS or values.dtype == np.bool_):
        return values
    careful = h5py.Group(group)
    if field in ENDS:
        return read_flag_array(careful, number, field)
    inner = careful.get(field)
    if field == "observations" and isinstance(inner, h5py.Group):
        names: list[str] = []  # of all that is there without links: visititems follows none
        inner.visititems(lambda name, item: names.append(f"{field}/{name}") if isinstance(item, h5py.Dataset) else None)
        return {name: read_number_array(careful, number, name) for name in names}
    return read_number_array(careful, number, field)


def _read_plain_array(group: h5g.GroupID, number: int, field: str, type_cache: Known) -> Array | None:
    """The group's array of numbers of that name; None for anything else, which a closer look explains."""
    _check_is_no_link(group, field.encode(), number, field)
    try:
        source = h5d.open(group, field.encode())
    except (KeyError, TypeError, ValueError):
        return None
    if not source.shape:
        return None
    _check_storage(source, number, field)
    kind = source.get_type().encode()
    if kind not in type_cache:
        type_cache[kind] = (source.dtype, h5t.py_create(source.dtype)) if source.dtype.kind in "biuf" else None
    if (types := type_cache[kind]) is None:
        return None
    values = np.empty(source.shape, types[0])
    source.read(h5s.ALL, h5s.ALL, values, types[1])
    return values


def read_number_array(group: h5py.Group, number: int | None, field: str) -> Array:
    """The group's array of numbers of that name, a row a step; BadEpisode if it is anything else.

    Nothing is unpickled.
    """
    _check_is_no_link(group.id, field.partition("/")[0].encode(), number, field)
    dataset = group.get(field)
    if isinstance(dataset, h5py.Group):
        raise BadEpisode(number, field, "an array expected, got a group")
    if not isinstance(dataset, h5py.Dataset):
        raise BadEpisode(number, field, "missing")
    if dataset.dtype.kind not in "biuf":
        raise BadEpisode(number, field, f"numbers expected, got {dataset.dtype}")
    if not dataset.shape:
        raise BadEpisode(number, field, "one row a step expected, got a single number")
    _check_storage(dataset.id, number, field)
    values: Array = dataset[()]
    return values


def _check_is_no_link(group: h5g.GroupID, name: bytes, number: int | None, field: str) -> None:
    """BadEpisode for a link: HDF5 would follow it to any file of the machine, or wait at a pipe for ever."""
    try:
        kind = group.links.get_info(name).type
    except (KeyError, ValueError, RuntimeError):  # it is missing, which other checks report
        return
    if kind != h5l.TYPE_HARD:
        raise BadEpisode(number, field, "a link, which is not followed; expected the data itself")


def _check_storage(source: h5d.DatasetID, number: int | None, field: str) -> None:
    """BadEpisode for values that are kept in another file, or for many more than the bytes of this one can hold."""
    made = source.get_create_plist()
    if made.get_layout() == h5d.VIRTUAL or made.get_external_count():
        raise BadEpisode(number, field, "its values are in another file, which is not read; expected the data itself")
    size = math.prod(source.shape) * source.dtype.itemsize
    kept = source.get_storage_size()
    if size > MOST_PACKED * kept + 2**20:
        raise BadEpisode(number, field, f"{size} bytes are said to be in {kept}")


def read_flag_array(group: h5py.Group, number: int | None, field: str) -> NDArray[np.bool_]:
    """The group's array of true or false values of that name, however they are written."""
    values = read_number_array(group, number, field)
    odd = (values != 0) & (values != 1)
    if odd.any():
        index = np.argwhere(odd)[0]
        raise BadEpisode(number, field, f"true or false expected, got {values[tuple(index)]} at step {index[0]}")
    return values.astype(bool)


def _read_total_return(group: h5g.GroupID, number: int) -> float | None:
    """The return that was noted: by us, or by Minari's collector."""
    name = next((name for name in (b"return", b"rewards_sum") if h5a.exists(group, name)), None)
    if name is None:
        return None
    total = h5py.Group(group).attrs[name.decode()]
    try:
        return float(total)
    except (TypeError, ValueError):
        raise BadEpisode(number, "return", f"a number expected, got {total!r}") from None


def check_episodes(episodes: Sequence[Episode], observation: int, action: int, discrete: bool) -> None:
    """BadEpisode for the first episode with values that are not finite, shapes that do not fit, no end or a wrong
    return.
    """
    for number, episode in enumerate(episodes):
        check_episode_shapes(number, episode, {"observations": (observation,)}, () if discrete else (action,))
        _check_values(number, episode, action, discrete)
        _check_end_and_return(number, episode)


def check_episode_shapes(
    number: int, episode: Episode, observations: Mapping[str, tuple[int, ...]], action: tuple[int, ...]
) -> None:
    """BadEpisode for the first array without a row of its shape for every step; the number of steps is the one that
    most arrays have.

    `observations` has the shapes of an observation's parts by their names; most have one part, named like the field.
    """
    recorded: Any = episode.observations
    seen = recorded if isinstance(recorded, Mapping) else {"observations": recorded}
    for name in observations:
        if name not in seen:
            raise BadEpisode(number, name, "missing")
    arrays = {name: seen[name] for name in observations} | {field: getattr(episode, field) for field in FIELDS[1:]}
    steps = mode(len(values) - (name in observations) for name, values in arrays.items())
    if not steps:
        raise BadEpisode(number, "rewards", "no steps")
    rows = {name: (steps + 1, *shape) for name, shape in observations.items()} | {"actions": (steps, *action)}
    for name, values in arrays.items():
        wanted = rows.get(name, (steps,))
        if values.shape != wanted:
            raise BadEpisode(number, name, f"shape {wanted} expected, got {values.shape}")


def _check_values(number: int, episode: Episode, action: int, discrete: bool) -> None:
    for field in ("observations", "actions", "rewards"):
        values = getattr(episode, field)
        with np.errstate(over="ignore"):
            bad = ~np.isfinite(values.astype(np.float32))  # float32, as they are kept
        if bad.any():
            index = np.argwhere(bad)[0]
            raise BadEpisode(number, field, f"{values[tuple(index)]} at step {index[0]}")
    actions = episode.actions
    wrong = (
        (actions < 0) | (actions >= action) | (actions != np.floor(actions)) if discrete else np.abs(actions) > 1 + 1e-5
    )
    if wrong.any():
        index = np.argwhere(wrong)[0]
        range_ = f"one of 0 to {action - 1}" if discrete else "a number within [-1, 1]"
        raise BadEpisode(number, "actions", f"{range_} expected, got {actions[tuple(index)]} at step {index[0]}")


def _check_end_and_return(number: int, episode: Episode) -> None:
    ended = np.flatnonzero(episode.terminations | episode.truncations)
    if not len(ended):
        raise BadEpisode(number, "terminations", "the last step is neither terminated nor truncated")
    if ended[0] < len(episode) - 1:
        field = "terminations" if episode.terminations[ended[0]] else "truncations"
        raise BadEpisode(number, field, f"an end at step {ended[0]}, but {len(episode)} steps")
    reward_sum, size = (float(rewards.sum(dtype=np.float64)) for rewards in (episode.rewards, np.abs(episode.rewards)))
    if episode.total is not None and not abs(reward_sum - episode.total) <= 1e-3 + 1e-4 * size:  # of sums in float32
        raise BadEpisode(number, "rewards", f"they sum to {reward_sum:g}, but the return is {episode.total:g}")
