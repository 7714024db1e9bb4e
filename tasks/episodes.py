"""Whole episodes as arrays, the HDF5 file they are kept in, and everything that can be wrong with them.

The file is Minari's: a group `episode_<n>` each, with one observation more than actions, the last one being what was seen
after the last action, truncated or not. Ours also has each episode's `return`, so that lost or altered rewards show.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mode
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

ENDS = ("terminations", "truncations")
FIELDS = ("observations", "actions", "rewards", *ENDS)


@dataclass(frozen=True)
class Episode:
    """T steps. `total` is the return as whoever recorded the episode noted it, if they did."""

    observations: NDArray[np.floating]  # (T + 1, O)
    actions: NDArray[np.floating] | NDArray[np.integer]  # (T, A) continuous, or (T,) discrete
    rewards: NDArray[np.floating]  # (T,)
    terminations: NDArray[np.bool_]  # (T,)
    truncations: NDArray[np.bool_]  # (T,)
    total: float | None = None

    def __len__(self) -> int:
        return len(self.rewards)


def episode(
    observations: Sequence[Any] | NDArray[Any],
    actions: Sequence[Any] | NDArray[Any],
    rewards: Sequence[float] | NDArray[Any],
    terminated: bool,
) -> Episode:
    """What was seen, done and earned, step by step, as an episode that was terminated or else truncated at its end."""
    last = np.arange(len(rewards)) == len(rewards) - 1
    return Episode(
        np.asarray(observations), np.asarray(actions), np.asarray(rewards), last & terminated, last & (not terminated)
    )


class BadEpisode(ValueError):
    """What is wrong, by episode (None: all of them in a row) and field, in one line."""

    def __init__(self, number: int | None, field: str, what: str) -> None:
        super().__init__(f"{field}: {what}" if number is None else f"episode {number}: {field}: {what}")


def write(episodes: Sequence[Episode], file: Path) -> None:
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


def read(file: Path) -> Iterator[Episode]:
    """The file's episodes in order, unchecked but for fields that are missing or are no arrays of numbers (BadEpisode)."""
    with h5py.File(file) as source:
        for number in range(len(source)):
            group = source.get(f"episode_{number}")
            if group is None:
                raise BadEpisode(number, "group", f"missing, of {len(source)} episodes")
            values: dict[str, Any] = {
                field: (flags if field in ENDS else numbers)(group, number, field) for field in FIELDS
            }
            yield Episode(**values, total=_total(group, number))


def numbers(group: h5py.Group, number: int | None, field: str) -> NDArray[Any]:
    """The group's array of numbers of that name, a row a step; BadEpisode if it is anything else. Nothing is unpickled."""
    found = group.get(field)
    if isinstance(found, h5py.Group):
        raise BadEpisode(number, field, "an array expected, got a group (Dict and Tuple spaces are not read)")
    if not isinstance(found, h5py.Dataset):
        raise BadEpisode(number, field, "missing")
    if found.dtype.kind not in "biuf":
        raise BadEpisode(number, field, f"numbers expected, got {found.dtype}")
    if not found.shape:
        raise BadEpisode(number, field, "one row a step expected, got a single number")
    return found[()]


def flags(group: h5py.Group, number: int | None, field: str) -> NDArray[np.bool_]:
    """The same of values that are true or false, however they are written."""
    values = numbers(group, number, field)
    odd = (values != 0) & (values != 1)
    if odd.any():
        place = np.argwhere(odd)[0]
        raise BadEpisode(number, field, f"true or false expected, got {values[tuple(place)]} at step {place[0]}")
    return values.astype(bool)


def _total(group: h5py.Group, number: int) -> float | None:
    """The return that was noted: by us, or by Minari's collector."""
    total = group.attrs.get("return", group.attrs.get("rewards_sum"))
    try:
        return None if total is None else float(total)
    except (TypeError, ValueError):
        raise BadEpisode(number, "return", f"a number expected, got {total!r}") from None


def check(episodes: Sequence[Episode], observation: int, action: int, discrete: bool) -> None:
    """BadEpisode for the first episode with values that are not finite, shapes that do not fit, no end or a wrong return."""
    for number, episode in enumerate(episodes):
        check_shapes(number, episode, (observation,), () if discrete else (action,))
        _check_values(number, episode, action, discrete)
        _check_end(number, episode)


def check_shapes(number: int, episode: Episode, observation: tuple[int, ...], action: tuple[int, ...]) -> None:
    """BadEpisode for the first array without a row of its shape for every step; there are as many steps as most arrays say."""
    arrays = {field: getattr(episode, field) for field in FIELDS}
    steps = mode(len(values) - (field == "observations") for field, values in arrays.items())
    if not steps:
        raise BadEpisode(number, "rewards", "no steps")
    rows = {"observations": (steps + 1, *observation), "actions": (steps, *action)}
    for field, values in arrays.items():
        wanted = rows.get(field, (steps,))
        if values.shape != wanted:
            raise BadEpisode(number, field, f"shape {wanted} expected, got {values.shape}")


def _check_values(number: int, episode: Episode, action: int, discrete: bool) -> None:
    for field in ("observations", "actions", "rewards"):
        values = getattr(episode, field)
        with np.errstate(over="ignore"):
            bad = ~np.isfinite(values.astype(np.float32))  # as they are kept
        if bad.any():
            place = np.argwhere(bad)[0]
            raise BadEpisode(number, field, f"{values[tuple(place)]} at step {place[0]}")
    taken = episode.actions
    wrong = (taken < 0) | (taken >= action) | (taken != np.floor(taken)) if discrete else np.abs(taken) > 1 + 1e-5
    if wrong.any():
        place = np.argwhere(wrong)[0]
        range_ = f"one of 0 to {action - 1}" if discrete else "a number within [-1, 1]"
        raise BadEpisode(number, "actions", f"{range_} expected, got {taken[tuple(place)]} at step {place[0]}")


def _check_end(number: int, episode: Episode) -> None:
    ended = np.flatnonzero(episode.terminations | episode.truncations)
    if not len(ended):
        raise BadEpisode(number, "terminations", "the last step is neither terminated nor truncated")
    if ended[0] < len(episode) - 1:
        field = "terminations" if episode.terminations[ended[0]] else "truncations"
        raise BadEpisode(number, field, f"an end at step {ended[0]}, but {len(episode)} steps")
    found, size = (float(rewards.sum(dtype=np.float64)) for rewards in (episode.rewards, np.abs(episode.rewards)))
    if episode.total is not None and not abs(found - episode.total) <= 1e-3 + 1e-4 * size:  # of sums in float32
        raise BadEpisode(number, "rewards", f"they sum to {found:g}, but the return is {episode.total:g}")
