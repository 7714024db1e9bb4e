"""What a parameter means, by the comments of the Configs, read from params.schema.json, which is made from them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from flows.params.files import PARAMS, ParameterError, params, read_text
from tasks.common.config import Schema
from tasks.common.config_faults import expected, resolved, shown, suggestion

SCHEMA = "params.schema.json"


def explain(root: Path, key: str) -> list[str]:
    """Lines on a key, or on a section and all keys in it; ParameterError if there is none."""
    try:
        schema = json.loads(read_text(root / SCHEMA))
    except json.JSONDecodeError as error:
        raise ParameterError(f"{SCHEMA}: line {error.lineno}: not valid JSON; `make contract` writes it") from None
    values = params(read_text(root / PARAMS))
    part: Schema = schema
    at: object = values
    for depth, name in enumerate(names := key.split(".")):
        below = _below(part, at, schema)
        if name not in below:
            above = ".".join(names[:depth])
            what = f"no parameter of {above}" if above else "no section of params.yaml"
            raise ParameterError(f"{key}: {what}{suggestion(name, [*below])}")
        part, at = below[name], _entries(at).get(name)
    return list(_lines(key, part, at, schema))


def _lines(key: str, part: Schema, value: object, schema: Schema) -> Iterator[str]:
    meaning = part.get("description", "").split("\n")[0]
    if not (below := _below(part, value, schema)):
        yield f"{key} = {shown(value)}: {meaning} Expected: {expected(dict(part), dict(schema))}."
        return
    yield f"{key}: {meaning}"
    for name, inner in below.items():
        yield from _lines(f"{key}.{name}", inner, _entries(value).get(name), schema)


def _below(part: Schema, value: object, schema: Schema) -> dict[str, Schema]:
    """The keys below a key: its properties, or the entries that the user has put there."""
    if "properties" in part:
        return {name: resolved(inner, schema) for name, inner in part["properties"].items()}
    entry = resolved(part.get("additionalProperties") or part.get("items") or {}, schema)
    return dict.fromkeys(_entries(value), entry) if "properties" in entry else {}


def _entries(value: object) -> Mapping[str, object]:
    """The values below a key by name; those of a list by number, from 0."""
    if isinstance(value, list):
        return {str(number): element for number, element in enumerate(value)}
    return value if isinstance(value, Mapping) else {}
