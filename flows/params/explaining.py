"""What a parameter means, by the comments of the Configs, read from params.schema.json, which is made from them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from flows.params.files import PARAMS, ParameterError, parse_params, read_text
from tasks.common.config import Schema
from tasks.common.config_faults import (
    describe_expected_value,
    format_names_hint,
    format_short_value,
    resolve_schema_reference,
)

SCHEMA = "params.schema.json"


def explain_param(root: Path, key: str) -> list[str]:
    """Lines on a key, or on a section and all keys in it; ParameterError if there is none."""
    try:
        schema = json.loads(read_text(root / SCHEMA))
    except json.JSONDecodeError as error:
        raise ParameterError(f"{SCHEMA}: line {error.lineno}: not valid JSON; `make contract` writes it") from None
    values = parse_params(read_text(root / PARAMS))
    part: Schema = schema
    at: object = values
    for depth, name in enumerate(names := key.split(".")):
        below = _get_child_schemas(part, at, schema)
        if name not in below:
            above = ".".join(names[:depth])
            what = f"no parameter of {above}" if above else "no section of params.yaml"
            raise ParameterError(f"{key}: {what}{format_names_hint(name, [*below])}")
        part = below[name]
        at = _get_child_values(at).get(name)
    return list(_iterate_explanation_lines(key, part, at, schema))


def _iterate_explanation_lines(key: str, part: Schema, value: object, schema: Schema) -> Iterator[str]:
    meaning = part.get("description", "").split("\n")[0]
    if not (below := _get_child_schemas(part, value, schema)):
        yield (
            f"{key} = {format_short_value(value)}: {meaning} Expected: "
            f"{describe_expected_value(dict(part), dict(schema))}."
        )
        return
    yield f"{key}: {meaning}"
    for name, inner in below.items():
        yield from _iterate_explanation_lines(f"{key}.{name}", inner, _get_child_values(value).get(name), schema)


def _get_child_schemas(part: Schema, value: object, schema: Schema) -> dict[str, Schema]:
    """The keys below a key: its properties, or the entries that the user has put there."""
    if "properties" in part:
        return {name: resolve_schema_reference(inner, schema) for name, inner in part["properties"].items()}
    entry = resolve_schema_reference(part.get("additionalProperties") or part.get("items") or {}, schema)
    return dict.fromkeys(_get_child_values(value), entry) if "properties" in entry else {}


def _get_child_values(value: object) -> Mapping[str, object]:
    """The values below a key by name; those of a list by number, from 0."""
    if isinstance(value, list):
        return {str(number): element for number, element in enumerate(value)}
    return value if isinstance(value, Mapping) else {}
