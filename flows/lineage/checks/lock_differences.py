"""Two entries of dvc.lock side by side: in which values they differ, and those in words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flows.engine.dvc_lock import Entry, get_entry_hashes

KINDS = {"deps": "dep", "outs": "out"}
LONGEST = 60  # letters of a value that are shown
ABSENT = object()


@dataclass(frozen=True)
class EntryDifference:
    """One value that two entries have differently; a value that one lacks is None."""

    kind: str  # cmd, param, dep or out
    name: str  # "dpo.beta", "data/sft"; the command has none
    first: Any
    second: Any

    @property
    def label(self) -> str:
        """What differs."""
        return {"cmd": "its command", "param": self.name}.get(self.kind, f"{self.kind} {self.name}")


def list_entry_differences(first: Entry, second: Entry) -> list[EntryDifference]:
    """Every value of the command, the params, the deps and the outs that differs."""
    return list(_iterate_differences(first, second))


def flatten_entry_params(entry: Entry) -> dict[str, Any]:
    """The entry's parameters by their dotted keys."""
    return {
        name: leaf
        for values in (entry.get("params") or {}).values()
        for section, content in values.items()
        for name, leaf in _iterate_leaves(content, str(section))
    }


def format_entry_value(value: object) -> str:
    """A value as a line holds it."""
    if value is None:
        return "missing"
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."


def _iterate_differences(first: Entry, second: Entry) -> Iterator[EntryDifference]:
    if (command := _normalize_command(first.get("cmd"))) != (other_command := _normalize_command(second.get("cmd"))):
        yield EntryDifference("cmd", "", command, other_command)
    yield from _iterate_value_differences("param", flatten_entry_params(first), flatten_entry_params(second))
    for kind, word in KINDS.items():
        yield from _iterate_value_differences(word, get_entry_hashes(first, kind), get_entry_hashes(second, kind))
        yield from _iterate_value_differences(
            f"{word}'s size of", _get_path_sizes(first, kind), _get_path_sizes(second, kind), both=True
        )


def _iterate_value_differences(
    kind: str, first: Mapping[str, Any], second: Mapping[str, Any], both: bool = False
) -> Iterator[EntryDifference]:
    for name in dict.fromkeys([*first, *second]):
        first_value = first.get(name, ABSENT)
        second_value = second.get(name, ABSENT)
        if first_value != second_value and not (both and ABSENT in (first_value, second_value)):
            yield EntryDifference(
                kind, name, *(None if value is ABSENT else value for value in (first_value, second_value))
            )


def _get_path_sizes(entry: Entry, kind: str) -> dict[str, tuple[Any, Any]]:
    return {item["path"]: (item["size"], item.get("nfiles")) for item in entry.get(kind, []) if "size" in item}


def _normalize_command(cmd: object) -> object:
    return " ".join(cmd.split()) if isinstance(cmd, str) else cmd


def _iterate_leaves(value: object, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _iterate_leaves(inner, f"{key}.{name}")
    else:
        yield key, value
