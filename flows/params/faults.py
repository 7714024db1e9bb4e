"""What a rule between sections yields, and the rule that every reference keeps to: a name of something that there is."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tasks.common.config_faults import shown, suggestion

Fault = tuple[str, str]  # a dotted key, and what was expected of it
Configs = Mapping[str, Any]  # section -> its Config


def one_of(name: str, known: Collection[str], what: str, key: str) -> Iterator[Fault]:
    """A fault where `name`, the value of `key`, is none of the known ones."""
    if name not in known:
        yield key, f"expected {what}{suggestion(name, [*known])}, got {shown(name)}"
