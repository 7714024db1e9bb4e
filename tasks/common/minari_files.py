"""Minari's files: episodes as HDF5, and what metadata.json must say of them. The same episodes give the same bytes; Minari's own writer adds the time."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from gymnasium import spaces
from minari.serialization import serialize_space

DATA, METADATA = Path("data/main_data.hdf5"), Path("data/metadata.json")
UNREADABLE = "\N{REPLACEMENT CHARACTER}".encode()  # in the place of what HDF5 keeps in no text
VERSION = "0.5.0"  # the format's, as Minari names it


def write_episodes(episodes: Iterable[tuple[Mapping[str, object], Mapping[str, Any]]], file: Path) -> None:
    """Each episode's attributes, and its fields in their order: arrays, lists of texts, or mappings of these."""
    with h5py.File(file, "w", track_order=True) as target:
        for number, (attributes, fields) in enumerate(episodes):
            group = target.create_group(f"episode_{number}", track_order=True)
            group.attrs["id"] = number
            for name, value in attributes.items():
                group.attrs[name] = value
            _write_fields(group, fields)


def metadata(
    name: str, episodes: int, steps: int, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
) -> dict[str, object]:
    """What Minari asks for, of the data set named so."""
    return {
        "dataset_id": f"{name}-v0",
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "minari_version": VERSION,
        "total_episodes": episodes,
        "total_steps": steps,
        "observation_space": serialize_space(observation_space),
        "action_space": serialize_space(action_space),
    }


def write_metadata(described: Mapping[str, object], folder: Path) -> None:
    """Put it into the data set's folder."""
    (folder / METADATA).write_text(json.dumps(described, indent=2) + "\n")


def _write_fields(group: h5py.Group, fields: Mapping[str, Any]) -> None:
    for name, values in fields.items():
        if isinstance(values, Mapping):
            _write_fields(group.create_group(name, track_order=True), values)
        elif isinstance(values, list):
            readable = [str(text).encode(errors="replace").replace(b"\0", UNREADABLE) for text in values]
            group.create_dataset(name, data=readable, dtype=h5py.string_dtype(), track_times=False)
        else:
            kept = values.astype(np.float32) if values.dtype.kind == "f" else values
            group.create_dataset(name, data=kept, track_times=False)
