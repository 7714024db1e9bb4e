"""params.yaml against params.schema.json, the JSON schema of the stages' Configs, with each fault said in one line.

Nothing of a stage is imported for it, so a misspelt or mistyped parameter is known at once.
"""

import difflib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

Key = tuple[str, ...]
PARAMS = "params.yaml"
SHOWN = 6  # names of many
TYPES = {
    "number": "a number",
    "integer": "a whole number",
    "string": "text",
    "boolean": "true or false",
    "array": "a list",
    "object": "keys with values",
    "null": "null",
}
BOUNDS = {
    "exclusiveMinimum": "above {}",
    "minimum": "of at least {}",
    "exclusiveMaximum": "below {}",
    "maximum": "of at most {}",
    "minLength": "of at least {} characters",
    "minItems": "of at least {} items",
    "maxItems": "of at most {} items",
    "pattern": "matching {}",
    "uniqueItems": "with none twice",
}


class ParameterError(Exception):
    """A parameter or its file is wrong; the text is the one line to show."""


def validate(data: Any, schema: dict[str, Any], sources: Mapping[Key, str]) -> None:
    """Raise ParameterError for the first fault, an unknown key before a missing one, since a misspelling is both."""
    rank = {"additionalProperties": 0, "required": 2, "anyOf": 3}  # a choice of many last: what it lacks says least
    faults = sorted(_faults(data, schema), key=lambda error: rank.get(error.validator, 1))
    if not faults:
        return
    fault = faults[0]
    while fault.context and isinstance(fault.instance, dict):  # a choice of sections: the fault in the closest
        fault = min(fault.context, key=lambda error: -len(error.absolute_path))
    key, message = _explain(fault, schema)
    source = next(
        (name for edited, name in sources.items() if key[: len(edited)] == edited or edited[: len(key)] == key), ""
    )
    prefix = f"{source} " if source == "--set" else f"{source or PARAMS}: "
    raise ParameterError(f"{prefix}{'.'.join(key)}: {message}" if key else f"{PARAMS}: {message}")


def idle(data: Any, schema: dict[str, Any]) -> Iterator[tuple[list[Key], str]]:
    """Groups of parameters that do nothing at these values, and what makes it so, as the schema's `idle` has it.

    A section's entry is `{"keys": [..], "where": {key: [values]}}`: it holds while all these keys have one of these values,
    `*` in a key standing for every entry.
    """
    for section, part in schema.get("properties", {}).items():
        for rule in _resolve(part, schema).get("idle", ()):
            try:
                found = {place: list(_values(data[section], place.split("."))) for place in rule["where"]}
            except (LookupError, TypeError, AttributeError):  # the file lacks it: another fault
                continue
            if all(value in rule["where"][place] for place, values in found.items() for value in values):
                seen = {place: dict.fromkeys(map(_plain, values)) for place, values in found.items()}
                why = [f"{section}.{place} {' or '.join(values)}".strip() for place, values in seen.items()]
                yield [(section, *key.split(".")) for key in rule["keys"]], " and ".join(why)


def _values(data: Any, place: Sequence[str]) -> Iterator[Any]:
    """The value at a place, or those of all entries where it has a `*`."""
    if not place:
        yield data
    elif place[0] == "*":
        for entry in data.values() if isinstance(data, dict) else data:
            yield from _values(entry, place[1:])
    else:
        yield from _values(data[place[0]], place[1:])


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def outside(data: Any, schema: dict[str, Any]) -> Iterator[tuple[Key, str, str, Any]]:
    """What parameters name that lies outside of the file: their key, the schema's keyword for its kind, the name, its value.

    `existsBelow`: a file or folder; `environmentsOr`: an environment of Gymnasium or of
    another package; `modelNotOf`: a folder with a model of
    another type than those that the schema lists.
    """
    for fault in _faults(data, schema, outside=True):
        if fault.validator in ("existsBelow", "environmentsOr", "modelNotOf"):
            yield tuple(map(str, fault.absolute_path)), fault.validator, fault.message, fault.validator_value


def _faults(data: Any, schema: dict[str, Any], *, outside: bool = False) -> Iterator[Any]:
    """Jsonschema's errors; with `outside` as well, as if an error, whatever names something outside of the file."""
    from jsonschema import Draft202012Validator, ValidationError
    from jsonschema.validators import extend

    def at(place: str) -> Any:
        found = data
        for part in place.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return found

    def exists_below(_: Any, place: str, name: Any, __: Any) -> Iterator[ValidationError]:
        folder = at(place)
        if outside and isinstance(folder, str) and isinstance(name, str):
            yield ValidationError(f"{folder}/{name}")

    def environments_or(_: Any, ours: Sequence[str], entries: Any, __: Any) -> Iterator[ValidationError]:
        for name, entry in entries.items() if outside and isinstance(entries, dict) else ():
            if isinstance(entry, dict) and (environment := entry.get("id") or name) not in ours:
                yield ValidationError(str(environment), path=[name])

    def model_not_of(_: Any, __: Sequence[str], name: Any, ___: Any) -> Iterator[ValidationError]:
        if outside and isinstance(name, str):
            yield ValidationError(name)

    def key_of(_: Any, place: str, name: Any, __: Any) -> Iterator[ValidationError]:
        entries = at(place)
        if isinstance(entries, dict | list) and isinstance(name, str) and name not in entries:  # else another fault
            kind = "a key" if isinstance(entries, dict) else "one"
            yield ValidationError(f"{kind} of {place}", context=[ValidationError(known) for known in entries])

    def fields_key_of(_: Any, places: Mapping[str, str], entry: Any, __: Any) -> Iterator[ValidationError]:
        for field, place in places.items():
            with suppress(KeyError, TypeError):  # of an entry that lacks what the place is named by: another fault
                for fault in key_of(None, place.format_map(entry), entry[field], None):
                    fault.path.append(field)
                    fault.instance = entry[field]
                    yield fault

    strict = Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "integer": lambda _, value: isinstance(value, int) and not isinstance(value, bool),
            "number": lambda _, value: (
                isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            ),
        }
    )
    keywords = {
        "keyOf": key_of,
        "fieldsKeyOf": fields_key_of,
        "existsBelow": exists_below,
        "environmentsOr": environments_or,
        "modelNotOf": model_not_of,
    }
    validator = extend(Draft202012Validator, keywords, type_checker=strict)(schema)
    yield from validator.iter_errors(data or {})


def _explain(fault: Any, schema: dict[str, Any]) -> tuple[Key, str]:
    key = tuple(map(str, fault.absolute_path))
    if fault.validator in ("keyOf", "fieldsKeyOf"):
        names, got = [one.message for one in fault.context], fault.instance
        close = suggestion(got, names) if isinstance(got, str) else ""
        return key, f"expected {fault.message}{close}, got {shown(got)}"
    known = fault.schema.get("properties", {})
    if fault.validator == "additionalProperties" and isinstance(fault.instance, dict):
        unknown = next(name for name in fault.instance if name not in known)
        kind = "parameter" if key else "section"
        return (*key, str(unknown)), f"unknown {kind}{_suggestion(str(unknown), key, known, schema)}"
    if fault.validator == "required":
        missing = next(name for name in fault.validator_value if name not in fault.instance)
        return (*key, missing), f"missing; expected {_expected(known.get(missing, {}), schema)}"
    why = f" {fault.schema['$comment']}" if "$comment" in fault.schema else ""
    return key, f"expected {_expected(fault.schema, schema)}{why}, got {shown(fault.instance)}"


def _suggestion(name: str, key: Key, known: Mapping[str, Any], schema: dict[str, Any]) -> str:
    close = difflib.get_close_matches(name, list(known), 1, 0.5)
    if not close:  # the right name under the wrong section
        sections = schema.get("properties", {})
        close = [
            f"{part}.{name}" for part in sections if name in _resolve(sections[part], schema).get("properties", {})
        ]
        return f"; did you mean {close[0]}?" if close else f"; there are {_some([*known])}" if known else ""
    return f"; did you mean {'.'.join((*key, close[0]))}?"


def suggestion(name: str, names: Sequence[str]) -> str:
    """The closest of the names there are, or some of them if none is close."""
    close = difflib.get_close_matches(name, names, 1, 0.5)
    return f" (did you mean {close[0]}?)" if close else f" (there are {_some(names)})" if names else ""


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


def free(schema: dict[str, Any], key: Key) -> bool:
    """Whether what stands at a key is a dictionary whose keys are the user's to choose, such as `transitions.datasets`."""
    part = _resolve(schema, schema)
    for name in key:
        part = part.get("properties", {}).get(name) or part.get("additionalProperties") or {}
        part = _resolve(part, schema) if isinstance(part, dict) else {}
    return isinstance(part.get("additionalProperties"), dict)


def _resolve(part: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in part:
        target: Any = schema
        for step in part["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        part = target
    return part


def _expected(part: dict[str, Any], schema: dict[str, Any]) -> str:
    """What a part of the schema accepts, in words."""
    part = _resolve(part, schema)
    if "const" in part:
        return shown(part["const"])
    if "enum" in part:
        return " or ".join(map(shown, part["enum"]))
    if "pattern" in part and "description" in part:
        return part["description"]
    choices = part.get("anyOf") or part.get("oneOf")
    if choices:
        return " or ".join(dict.fromkeys(_expected(choice, schema) for choice in choices))
    types = part.get("type", "object")
    words = " or ".join(TYPES.get(name, name) for name in ([types] if isinstance(types, str) else types))
    bounds = " and ".join(text.format(part[bound]) for bound, text in BOUNDS.items() if bound in part)
    return f"{words} {bounds}".strip()


def shown(value: Any) -> str:
    """A value as an error or a change shows it: short, text in quotes, of many entries their names."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > 60 and isinstance(value, dict):
        text = f"{{{', '.join(value)}}}"
    return shortened(text)


def shortened(text: str) -> str:
    """A text as a line can have it."""
    return text if len(text) <= 60 else text[:57] + "..."
