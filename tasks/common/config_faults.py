"""What is wrong with a section of params.yaml, in one line: the key, what was expected of it, and what stands there."""

import difflib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tasks.common.config import BRANCHES, Config, Schema, build_config_schema

Key = tuple[str, ...]
ADAPTER = "adapter_config.json"  # as peft names it
SHOWN = 6  # names shown of a longer list
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
    "minProperties": "of at least {} items",
    "pattern": "matching {}",
    "uniqueItems": "with none twice",
}
RANK = {"extra_forbidden": 0, "missing": 2}  # a misspelt key is both unknown and missing; the former says more


class SectionError(ValueError):
    """A section of params.yaml is no Config: the key at fault, and what was expected of it."""

    def __init__(self, key: Key, message: str) -> None:
        super().__init__(f"{'.'.join(key)}: {message}")
        self.key = key
        self.message = message


def parse_stage_config(stage: str, types: Mapping[str, type[Config]], params: Mapping[str, Any]) -> Config:
    """A stage's Config, from its section of params.yaml and its entry in the section `branches`; SectionError for the
    first fault.
    """
    section = merge_branch_entries(stage, types[stage], params)
    field = types[stage].branched_by
    if section is None:
        raise SectionError((stage,), "missing; expected keys with values")
    if field and field in (params.get(stage) or ()):
        raise SectionError((stage, field), f"unknown parameter; expected as {BRANCHES}.{stage}")
    try:
        return types[stage].parse_section(section)
    except ValidationError as error:
        key, message = explain_validation_error(error, stage, types)
        raise SectionError(map_config_key_to_params_key(key, types), message) from None


def merge_branch_entries(stage: str, config_type: type[Config], params: Mapping[str, Any]) -> Any:
    """A stage's section of params.yaml with what the section `branches` has for it; None where there is no section."""
    field = config_type.branched_by
    entries = params.get(BRANCHES)
    section = params.get(stage, {} if {*config_type.model_fields} == {field} else None)
    if not field or not isinstance(section, Mapping) or not isinstance(entries, Mapping) or stage not in entries:
        return section
    return {**section, field: entries[stage]}


def map_config_key_to_params_key(key: Key, types: Mapping[str, type[Config]]) -> Key:
    """Where params.yaml has what a Config has at a key: `agents.policies.a` stands at `branches.agents.a`."""
    field = types[key[0]].branched_by if key[0] in types else ""
    return (BRANCHES, key[0], *key[2:]) if field and key[1:2] == (field,) else key


def map_params_key_to_config_key(key: Key, types: Mapping[str, type[Config]]) -> Key:
    """Where a Config has what params.yaml has at a key: the inverse of `in_file`."""
    if len(key) > 1 and key[0] == BRANCHES and key[1] in types and types[key[1]].branched_by:
        return (key[1], types[key[1]].branched_by, *key[2:])
    return key


def explain_validation_error(
    error: ValidationError, section: str, types: Mapping[str, type[Config]]
) -> tuple[Key, str]:
    """The first fault's key, with the section before it, and the message about it."""
    fault = min(error.errors(include_url=False), key=lambda candidate: RANK.get(candidate["type"], 1))
    location = tuple(map(str, fault["loc"]))
    inner = _build_cached_schema(types[section])
    key = (section, *location)
    got = fault["input"]
    if fault["type"] == "extra_forbidden":
        properties = _get_schema_part(inner, location[:-1]).get("properties", {})
        return key, f"unknown parameter{_format_similar_key_hint(key, properties, types)}"
    if fault["type"] == "missing":
        return key, f"missing; expected {describe_expected_value(_get_schema_part(inner, location), inner)}"
    if location and location[-1] == "[key]":
        names = _get_schema_part(inner, location[:-2])["propertyNames"]
        if words := _describe_allowed_keys(names):
            return key[
                :-1
            ], f"unknown{format_closest_name_hint(location[-2], _list_enumerated_values(names))}; expected {words}"
        return (section, *location[:-2]), f"expected {names['description']}, got {format_short_value(got)}"
    if fault["type"] == "value_error":
        return key, f"{fault['ctx']['error']}, got {format_short_value(got)}"
    return (
        key,
        f"expected {describe_expected_value(_get_schema_part(inner, location), inner)}, got {format_short_value(got)}",
    )


@cache
def _build_cached_schema(config_type: type[Config]) -> Schema:
    return build_config_schema(config_type)


def _get_schema_part(schema: Schema, key: Sequence[str]) -> Schema:
    """What the schema says of the value at a key."""
    part = resolve_schema_reference(schema, schema)
    for name in key:
        choices = [resolve_schema_reference(choice, schema) for choice in part.get("anyOf", [part])]
        part = next(choice for choice in choices if choice.get("type") != "null")
        below = part.get("properties", {}).get(name) or part.get("items") or part.get("additionalProperties") or {}
        part = resolve_schema_reference(below, schema) if isinstance(below, dict) else {}
    return part


def resolve_schema_reference(part: Schema, schema: Schema) -> Schema:
    """A part of a JSON schema with its reference replaced by what it refers to; keys beside the reference win."""
    while "$ref" in part:
        named = schema["$defs"][part["$ref"].rpartition("/")[2]]
        part = {**named, **{key: value for key, value in part.items() if key != "$ref"}}
    return dict(part)


def has_user_chosen_keys(config_type: type[Config], key: Sequence[str]) -> bool:
    """Whether what stands at a key of the section is a dictionary whose keys are the user's, such as the policies of
    `agents`.
    """
    return isinstance(_get_schema_part(_build_cached_schema(config_type), key).get("additionalProperties"), dict)


def describe_expected_value(part: Schema, schema: Schema) -> str:
    """What a part of the schema accepts, in words."""
    part = resolve_schema_reference(part, schema)
    if "const" in part:
        return format_short_value(part["const"])
    if "enum" in part:
        return " or ".join(map(format_short_value, part["enum"]))
    if choices := part.get("anyOf"):
        return " or ".join(
            dict.fromkeys(choice.get("description") or describe_expected_value(choice, schema) for choice in choices)
        )
    if words := _describe_allowed_keys(part.get("propertyNames", {})):
        return f"{describe_expected_value(part['additionalProperties'], schema)} for any of {words}"
    bounds = " and ".join(text.format(part[bound]) for bound, text in BOUNDS.items() if bound in part)
    return f"{TYPES[part.get('type', 'object')]} {bounds}".strip()


def _describe_allowed_keys(part: Schema) -> str:
    """The keys that a dictionary may have, in words; empty where they are the user's to choose."""
    names = _list_enumerated_values(part)
    if not names:
        return ""
    described = [choice["description"] for choice in part.get("anyOf", [part]) if "enum" not in choice]
    return " or ".join([*names, *described])


def _list_enumerated_values(part: Schema) -> list[str]:
    return [name for choice in part.get("anyOf", [part]) for name in choice.get("enum", ())]


def _format_similar_key_hint(key: Key, properties: Mapping[str, object], types: Mapping[str, type[Config]]) -> str:
    *above, name = key
    close = difflib.get_close_matches(name, list(properties), 1, 0.5)
    if close:
        return f"; did you mean {'.'.join(map_config_key_to_params_key((*above, close[0]), types))}?"
    having = (section for section, config in types.items() if name in config.model_fields)
    elsewhere = [".".join(map_config_key_to_params_key((section, name), types)) for section in having]
    return (
        f"; did you mean {elsewhere[0]}?"
        if elsewhere
        else f"; there are {join_first_names([*properties])}"
        if properties
        else ""
    )


def format_names_hint(name: str, names: Sequence[str]) -> str:
    """The closest of the names there are, or some of them if none is close."""
    return format_closest_name_hint(name, names) or (f" (there are {join_first_names(names)})" if names else "")


def format_closest_name_hint(name: str, names: Sequence[str]) -> str:
    """The closest of the names there are, as a question; empty if none is close."""
    close = difflib.get_close_matches(name, names, 1, 0.5)
    return f" (did you mean {close[0]}?)" if close else ""


def describe_missing_model(folder: Path) -> str:
    """What to say of a folder without a config.json, or with an adapter's weights alone: it may hold a LoRA adapter,
    which is no model.
    """
    if not (folder / ADAPTER).is_file():
        return "holds no config.json; expected a model in Hugging Face layout"
    try:
        content = json.loads((folder / ADAPTER).read_text())
        kind = content.get("peft_type")
        base = content.get("base_model_name_or_path")
    except (AttributeError, OSError, ValueError, RecursionError):
        kind = base = None
    named = f"its base model is {base}" if base else f"{ADAPTER} does not name its base model"
    return (
        f"holds {f'a {kind}' if kind == 'LORA' else 'an'} adapter alone ({ADAPTER}); {named}; "
        "expected a copy of the base "
        "model's folder, with the two files of the adapter in it: they are merged when it is loaded"
    )


def join_first_names(names: Sequence[str]) -> str:
    """Some of the names, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"


def format_short_value(value: object) -> str:
    """A value as an error or a change shows it: short, with text in quotes, and only the names of many entries."""
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > 60 and isinstance(value, dict):
        text = f"{{{', '.join(value)}}}"
    return shorten_text(text)


def shorten_text(text: str) -> str:
    """A text that fits in a line."""
    return text if len(text) <= 60 else text[:57] + "..."
