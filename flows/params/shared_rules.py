"""What a rule between sections yields, and two rules that many of them share."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from tasks.common.config_faults import format_names_hint, format_short_value

Fault = tuple[str, str]  # a dotted key, and what was expected of it
Configs = Mapping[str, Any]  # section -> its Config


def find_unknown_choice_faults(name: str, choices: Collection[str], what: str, key: str) -> Iterator[Fault]:
    """A fault where `name`, the value of `key`, is none of the known ones."""
    if name not in choices:
        yield key, f"expected {what}{format_names_hint(name, [*choices])}, got {format_short_value(name)}"


def find_missing_path_faults(root: Path, folder: str, location: str, key: str) -> Iterator[Fault]:
    """What a section reads from the disk exists."""
    if not (root / folder / location).exists():
        yield key, f"{folder}/{location} does not exist"
