"""Invalid values of parameters, made from the schema: of the wrong type, out of range, or of the wrong shape."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from flows.params import checking, editing
from flows.params.files import SEED, ParameterError

ROOT = Path(__file__).parents[1]
SCHEMA = json.loads((ROOT / "params.schema.json").read_text())
SECTIONS = checking.load_config_classes(ROOT)
LOADED = YAML(typ="safe").load(ROOT / "params.yaml")
PARAMS = {name: section for name, section in LOADED.items() if not name.startswith(checking.SHARED)}
SLOW = 30.0  # seconds
OTHERS: dict[str, list[Any]] = {  # type -> values that are not of that type
    "integer": ["three", 1.5, True, [1], {"a": 1}, None, 10**400],
    "number": ["three", True, [1.0], {"a": 1.0}, None, float("inf"), float("nan")],
    "boolean": ["maybe", 1, [True], None],
    "string": [1, True, ["a"], {"a": "b"}, None],
    "array": ["a", 1, {"a": 1}, None],
    "object": ["a", 1, [1], None],
}


def iterate_invalid_values() -> Iterator[tuple[str, Any]]:
    """A dotted key and a value that it cannot have."""
    for section, values in PARAMS.items():
        if section == SEED:  # no section
            yield from ((SEED, value) for value in (*OTHERS["integer"], -1, 2**32))
            continue
        yield from _iterate_schema_violations(resolve_schema_reference(SCHEMA["properties"][section]), values, section)


def find_refusal_faults(scratch: Path, key: str, value: Any) -> list[str]:
    """What is wrong with the response to this value, given by --set and in params.yaml itself."""
    shutil.copy(ROOT / "params.yaml", scratch)
    before = (scratch / "params.yaml").read_bytes()
    found = []
    try:
        editing.edit_params(scratch, SECTIONS, [editing.parse_setting(f"{key}={json.dumps(value)}")])
        found.append("taken")
    except ParameterError as error:
        found += _find_message_faults(str(error), key)
    except Exception as error:
        found.append(f"{type(error).__name__}: {error}"[:200])
    if (scratch / "params.yaml").read_bytes() != before:
        found.append("params.yaml was changed")
    return found


def build_hostile_yaml_texts() -> list[str]:
    """YAML that would take a parser's stack, memory or time, at several sizes."""
    texts = []
    for size in (60, 1000, 50_000, 500_000):
        opened = [
            f"a: {'[' * size}",
            f"a: {'{a: ' * size}",
            f"a: {'[' * size}{']' * size}",
            "? " * size,
            f"a: {'[? ' * size}",
        ]
        texts += [*opened, f"{'- ' * size}1"]
    for levels in (12, 30, 300):
        for below in (
            "[*a{0}, *a{0}]",
            "{{<<: *a{0}, b: *a{0}}}",
            "{{<<: [*a{0}, *a{0}, *a{0}]}}",
            "{{b: {{<<: *a{0}}}}}",
        ):
            chain = (f"a{level}: &a{level} {below.format(level - 1)}" for level in range(1, levels))
            texts.append("\n".join(["a0: &a0 {x: 1, y: 1}", *chain]))
    return [*texts, "a: &a [*a]", "a: &a {<<: *a}", "a: &a {b: &b [*a, *b]}"]


def find_slow_yaml_responses(scratch: Path, text: str) -> list[str]:
    """What is wrong with the response to this text in params.yaml, in a preset, and as a value."""
    (scratch / "presets").mkdir(exist_ok=True)
    for name in ("params.yaml", "presets/a.yaml"):
        (scratch / name).write_text(text)
    found = []
    acts: list[Callable[[], object]] = [
        lambda: editing.check_params(scratch, SECTIONS),
        lambda: editing.load_preset_edits(scratch, SECTIONS, "a"),
        lambda: editing.parse_setting(f"dpo.beta={text}"),
    ]
    for act in acts:
        began = time.monotonic()
        with suppress(ParameterError):
            act()
        if time.monotonic() - began > SLOW:
            found.append(f"took {time.monotonic() - began:.0f} s")
    return found


def _find_message_faults(line: str, key: str) -> list[str]:
    odd = [] if "\n" not in line and len(line) < 600 else ["not one short line"]
    said = any(words in line for words in ("expected", "unknown parameter", "300 digits", "no such entry"))
    return odd + ([] if key.split(".")[0] in line and said else [f"says no more than: {line}"])


def _iterate_schema_violations(part: dict[str, Any], value: Any, key: str) -> Iterator[tuple[str, Any]]:
    choices = [resolve_schema_reference(choice) for choice in part.get("anyOf", [part])]
    types = {choice.get("type", "object") for choice in choices if "enum" not in choice}
    wanted = {kind for choice in choices for kind in OTHERS if choice.get("type") == kind}
    for kind in sorted(wanted):
        for other in OTHERS[kind]:
            if not _has_json_type(other, types):
                yield key, other
    for choice in choices:
        if "enum" in choice:
            yield key, "none of them"
        yield from ((key, choice[bound] - 1) for bound in ("minimum",) if bound in choice)
        yield from ((key, choice[bound] + 1) for bound in ("maximum",) if bound in choice)
        yield from ((key, choice[bound]) for bound in ("exclusiveMinimum", "exclusiveMaximum") if bound in choice)
        if choice.get("minItems"):
            yield key, []
        if choice.get("minProperties"):
            yield key, {}
    if isinstance(value, dict) and "properties" in part:
        yield key, {**value, "unknown": 1}
        for name, below in part["properties"].items():
            yield key, {other: content for other, content in value.items() if other != name}
            yield from _iterate_schema_violations(resolve_schema_reference(below), value[name], f"{key}.{name}")
    elif isinstance(value, dict) and value:
        name = next(iter(value))
        yield key, {**value, "../escaped": value[name]}
        yield from _iterate_schema_violations(
            resolve_schema_reference(part.get("additionalProperties") or {}), value[name], f"{key}.{name}"
        )


def _has_json_type(value: Any, types: set[str]) -> bool:
    """Whether a value has one of these JSON types."""
    kinds = {
        "null": value is None,
        "boolean": isinstance(value, bool),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, int | float) and not isinstance(value, bool),
        "string": isinstance(value, str),
        "array": isinstance(value, list),
        "object": isinstance(value, dict),
    }
    return any(kinds[kind] for kind in types)


def resolve_schema_reference(part: dict[str, Any]) -> dict[str, Any]:
    """A part of the schema with its reference replaced by what it refers to."""
    while "$ref" in part:
        part = SCHEMA["$defs"][part["$ref"].rpartition("/")[2]]
    return part
