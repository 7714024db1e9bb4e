"""What a stage must have made, in any project, before its outs may enter the cache.

Every declared out is there and not empty, and numbers in one that is a JSON file (a stage's metrics) are finite.
"""

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any


def problems(root: Path, outs: Iterable[Path]) -> Iterator[str]:
    """One line for each declared out that is missing, empty, or a JSON file with a number that is none."""
    for out in outs:
        name = out.relative_to(root) if out.is_relative_to(root) else out
        if not out.exists():
            yield f"{name}: the command ended without writing it"
        elif not (any(out.iterdir()) if out.is_dir() else out.stat().st_size):
            yield f"{name}: the command left it empty"
        elif out.suffix == ".json" and out.is_file():
            try:
                content = json.loads(out.read_text())
            except ValueError as error:
                yield f"{out.name}: not JSON: {error}"
            else:
                yield from (f"{out.name}: {key}: expected a finite number, got {bad}" for key, bad in _bad(content))


def _bad(value: Any, key: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _bad(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _bad(inner, f"{key}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        yield key, value
