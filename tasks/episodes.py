"""Whole episodes as arrays, the HDF5 file they are kept in, and everything that can be wrong with them.

The file is Minari's: a group `episode_<n>` each, with one observation more than actions, the last one being what was seen
after the last action, truncated or not. Ours also has each episode's `return`, so that lost or altered rewards show.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

FIELDS = ("observations", "actions", "rewards", "terminations", "truncations")


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
    """What is wrong, by episode and field, in one line."""

    def __init__(self, number: int, field: str, what: str) -> None:
        super().__init__(f"episode {number}: {field}: {what}")


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
    """The file's episodes in order, unchecked but for fields that are missing or are no numbers (BadEpisode)."""
    with h5py.File(file) as source:
        for number in range(len(source)):
            group = source.get(f"episode_{number}")
            if group is None:
                raise BadEpisode(number, "group", f"missing, of {len(source)} episodes")
            fields = {field: _field(group, number, field) for field in FIELDS}
            total = group.attrs.get("return")
            yield Episode(**fields, total=None if total is None else float(total))


def _field(group: h5py.Group, number: int, field: str) -> Any:
    found = group.get(field)
    if not isinstance(found, h5py.Dataset):
        raise BadEpisode(number, field, "missing")
    values = found[()]
    if values.dtype.kind not in "biuf":
        raise BadEpisode(number, field, f"numbers expected, got {values.dtype}")
    return values


def check(episodes: Sequence[Episode], observation: int, action: int, discrete: bool) -> None:
    """BadEpisode for the first episode with values that are not finite, shapes that do not fit, no end or a wrong return."""
    for number, episode in enumerate(episodes):
        _check_shapes(number, episode, observation, action, discrete)
        _check_values(number, episode, action, discrete)
        _check_end(number, episode)


def _check_shapes(number: int, episode: Episode, observation: int, action: int, discrete: bool) -> None:
    steps = len(episode)
    if not steps:
        raise BadEpisode(number, "rewards", "no steps")
    wanted = {
        "observations": (steps + 1, observation),
        "actions": (steps,) if discrete else (steps, action),
        "rewards": (steps,),
        "terminations": (steps,),
        "truncations": (steps,),
    }
    for field, shape in wanted.items():
        found = getattr(episode, field).shape
        if found != shape:
            raise BadEpisode(number, field, f"shape {shape} expected, got {found}")


def _check_values(number: int, episode: Episode, action: int, discrete: bool) -> None:
    for field in ("observations", "actions", "rewards"):
        values = getattr(episode, field)
        bad = ~np.isfinite(values)
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
    found = float(episode.rewards.sum(dtype=np.float64))
    if episode.total is not None and not np.isclose(found, episode.total, rtol=1e-4, atol=1e-3):
        raise BadEpisode(number, "rewards", f"they sum to {found:g}, but the return is {episode.total:g}")
