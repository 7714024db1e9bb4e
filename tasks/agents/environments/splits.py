"""Games divided into splits by what they open with, so that no two splits share an opening."""

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Literal

from tasks.agents.environments.protocol import Message

Split = Literal["train", "validation", "test"]
BUCKETS: Mapping[Split, range] = {"test": range(0, 2), "validation": range(2, 3), "train": range(3, 10)}  # tenths


def compute_opening_split(opening: Sequence[Message]) -> Split:
    """The split of every game that opens so."""
    bucket = zlib.crc32(json.dumps([*opening]).encode()) % 10
    return next(split for split, buckets in BUCKETS.items() if bucket in buckets)
