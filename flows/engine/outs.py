"""What a stage must have made, in any project, before its outs may enter the cache.

Every declared out is there and not empty, and metrics are finite numbers.
"""

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any


def problems(root: Path, outs: Iterable[Path], metrics: Iterable[Path]) -> Iterator[str]:
    """One line for each declared out or metrics file that is missing, empty, or has a number that is none."""
    for out in outs:
        name = out.relative_to(root) if out.is_relative_to(root) else out
        if not out.exists():
            yield f"{name}: the command ended without writing it"
        elif not (any(out.iterdir()) if out.is_dir() else out.stat().st_size):
            yield f"{name}: the command left it empty"
    for path in metrics:
        if path.suffix == ".json" and path.is_file():
            try:
                content = json.loads(path.read_text())
            except ValueError as error:
                yield f"{path.name}: not JSON: {error}"
            else:
                yield from (f"{path.name}: {key}: expected a finite number, got {bad}" for key, bad in _bad(content))


def _bad(value: Any, key: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _bad(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _bad(inner, f"{key}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        yield key, value
