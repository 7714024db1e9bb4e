"""Steps whose matrix products are in bfloat16, weights and all else in single precision."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import torch

Row = TypeVar("Row")


def iterate_under_autocast(steps: Iterable[Row], device: torch.device, bfloat16: bool) -> Iterator[Row]:
    """The same steps, each computed in bfloat16 where that is asked for.

    Networks of a step may learn one after another, so that no weight that was rounded before is used again: torch's
    cache of them is off.
    """
    remaining = iter(steps)
    while True:
        with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16, cache_enabled=False):
            try:
                row = next(remaining)
            except StopIteration:
                return
        yield row
