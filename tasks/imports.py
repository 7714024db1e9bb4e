"""Data sets that others recorded, as episodes: Minari's folders, and D4RL's files of flat arrays.

Actions come to lie in [-1, 1], as our environments take them; beyond the environment's bounds they are clipped, as it does itself.
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from tasks import episodes, recordings, simulators
from tasks.episodes import BadEpisode, Episode

FLAT = ("observations", "actions", "rewards", "terminals", "timeouts")


def minari(folder: Path, environment: str) -> list[Episode]:
    """The data set in `folder` (Minari's <id>, with a folder `data` in it), which must be HDF5; not yet checked."""
    try:
        kind = json.loads((folder / recordings.METADATA).read_text()).get("data_format", "hdf5")
    except (OSError, ValueError) as error:
        raise SystemExit(f"{folder}: no Minari data set: {' '.join(str(error).split())}") from None
    if kind != "hdf5":
        raise SystemExit(f"{folder}: Minari's format {kind} is not read here; save the data set as hdf5")
    return _ours(episodes.read(folder / recordings.DATA), environment)


def remote_minari(name: str, environment: str) -> list[Episode]:
    """The data set of that id, downloaded by Minari to its own place unless it is there."""
    from minari import load_dataset

    try:
        found = load_dataset(name, download=True)
    except Exception as error:  # whatever its host's client raises
        raise SystemExit(f"{name}: Minari does not give this data set: {' '.join(str(error).split())}") from None
    return minari(Path(found.storage.data_path).parent, environment)


def d4rl(file: Path, environment: str) -> list[Episode]:
    """D4RL's arrays of N steps in a row, cut where `terminals` or `timeouts` say so; what follows the last end is left out.

    `next_observations` may be missing. Then what a truncated episode saw last is unknown, so that its last step is left out,
    and what a terminated one saw last, which no method may use, repeats the observation before.
    """
    arrays = _flat(file)
    ends = [int(end) + 1 for end in np.flatnonzero(arrays["terminals"] | arrays["timeouts"])]
    if not ends:
        raise BadEpisode(0, "terminals", f"no end in {len(arrays['terminals'])} steps")
    cuts = zip([0, *ends[:-1]], ends, strict=True)
    found = [_cut(number, arrays, *cut) for number, cut in enumerate(cuts)]
    return _ours((episode for episode in found if episode is not None), environment)


def _flat(file: Path) -> dict[str, NDArray[Any]]:
    """The file's arrays, of one length each; those of ends as bool."""
    try:
        with h5py.File(file) as source:
            missing = [name for name in FLAT if name not in source]
            if missing:
                raise BadEpisode(0, missing[0], f"missing (a D4RL file has {', '.join(FLAT)})")
            arrays = {name: source[name][()] for name in (*FLAT, "next_observations") if name in source}
    except OSError as error:
        raise SystemExit(f"{file}: no D4RL file: {' '.join(str(error).split())}") from None
    steps = len(arrays["observations"])
    for name, values in arrays.items():
        if len(values) != steps:
            raise BadEpisode(0, name, f"{steps} steps expected as in observations, got {len(values)}")
    return {**arrays, "terminals": arrays["terminals"].astype(bool), "timeouts": arrays["timeouts"].astype(bool)}


def _cut(number: int, arrays: dict[str, NDArray[Any]], start: int, end: int) -> Episode | None:
    """The steps `start` to `end` (excluded) as an episode, or None if nothing is left of it."""
    terminated, seen = bool(arrays["terminals"][end - 1]), arrays["observations"][start:end]
    if "next_observations" in arrays:
        after = arrays["next_observations"][start:end]
        apart = ~np.isclose(after[:-1], seen[1:], atol=1e-4, equal_nan=True).reshape(len(seen) - 1, -1).all(1)
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


def _ours(found: Iterable[Episode], environment: str) -> list[Episode]:
    """With flat observations and with actions as tasks/simulators.py has them."""
    env = simulators.make(environment)
    env.close()
    return [
        replace(one, observations=env.flat(one.observations), actions=env.inward(one.actions), total=None)
        for one in found
    ]
