"""Episodes in text as a data set that the offline flow reads: Minari's files with vectors, and the texts beside
them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from minari.serialization import serialize_space

from tasks.agents.environments.as_gymnasium import Described, join_opening_messages
from tasks.agents.environments.protocol import Message
from tasks.agents.environments.vectors import GameReader

DATA = Path("data/main_data.hdf5")
METADATA = Path("data/metadata.json")
VERSION = "0.5.0"  # the format's, as Minari names it
UNREADABLE = "\N{REPLACEMENT CHARACTER}".encode()  # in the place of the letter 0, which HDF5 keeps in no text


@dataclass(frozen=True)
class Transcribed:
    """One episode of T turns, in text."""

    game: int  # the seed of its environment
    opening: list[Message]
    actions: Sequence[str]  # T
    observations: Sequence[str]  # T, each behind its action
    rewards: Sequence[float]  # T
    terminated: bool  # the game ended; False: it would have gone on, or nobody knows


def write_minari_dataset(episodes: Sequence[Transcribed], described: Described, out: Path) -> None:
    """The data set and its environment; `described` has every action of the episodes.

    The same episodes give the same bytes.
    """
    (out / DATA).parent.mkdir(parents=True, exist_ok=True)
    described.write(out)
    with h5py.File(out / DATA, "w", track_order=True) as target:
        for number, episode in enumerate(episodes):
            _write_episode(episode, number, described, target.create_group(f"episode_{number}", track_order=True))
    metadata = {
        "dataset_id": f"{out.name}-v0",
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "minari_version": VERSION,
        "total_episodes": len(episodes),
        "total_steps": sum(len(episode.actions) for episode in episodes),
        "observation_space": serialize_space(described.observation_space),
        "action_space": serialize_space(described.action_space),
    }
    (out / METADATA).write_text(json.dumps(metadata, indent=2) + "\n")


def _write_episode(episode: Transcribed, number: int, described: Described, group: h5py.Group) -> None:
    """One episode's numbers, and in `infos` its texts, as TextGame's info has them."""
    reader = GameReader(described.features, described.decay)
    numbers = described.numbers
    texts = [join_opening_messages(episode.opening), *episode.observations]
    action_texts = ["", *episode.actions]
    last = np.arange(len(episode.actions)) == len(episode.actions) - 1
    group.attrs.update(
        {"id": number, "seed": episode.game, "total_steps": len(episode.actions), "return": float(sum(episode.rewards))}
    )
    fields = {
        "observations": np.stack([reader.read(*pair) for pair in zip(texts, action_texts, strict=True)]),
        "actions": np.array([numbers[action] for action in episode.actions], np.int64),
        "rewards": np.array(episode.rewards, np.float32),
        "terminations": last & episode.terminated,
        "truncations": last & (not episode.terminated),
    }
    for name, values in fields.items():
        group.create_dataset(name, data=values, track_times=False)
    infos = group.create_group("infos", track_order=True)
    for name, lines in {"text": texts, "said": action_texts}.items():
        readable = [line.encode(errors="replace").replace(b"\0", UNREADABLE) for line in lines]
        infos.create_dataset(name, data=readable, dtype=h5py.string_dtype(), track_times=False)
