"""What each parameter means, from the comments of the Configs: descriptions in params.schema.json, and
docs/parameters.md.

A comment stands behind its field, or alone in the lines before it.
"""

import inspect
import io
import json
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence

from tasks.common.config import Config, Schema
from tasks.common.config_faults import expected, resolved

FIELD, VALUES = re.compile(r"    (\w+): "), re.compile(r"\S+(:| \||  ?->) ")


def descriptions(config_type: type[Config]) -> dict[str, str]:
    """Field -> its comment as a sentence, of the class and of those that it inherits from."""
    comments: dict[str, str] = {}
    for base in reversed(config_type.__mro__):
        if issubclass(base, Config) and base is not Config:
            comments |= dict(_commented(inspect.getsource(base)))
    return comments


def _commented(source: str) -> Iterator[tuple[str, str]]:
    lines, comments = source.splitlines(), {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments[token.start[0]] = token.string.lstrip("# ")
    for number, line in enumerate(lines, 1):
        field = FIELD.match(line)
        if field and (text := comments.get(number) or _above(lines, comments, number)):
            values = VALUES.match(text)  # begins with a value, whose spelling is kept
            yield field[1], f"{text if values else text[0].upper() + text[1:]}."


def _above(lines: Sequence[str], comments: Mapping[int, str], number: int) -> str:
    """The comment that fills the lines above this one, as one text; empty where there is none."""
    above: list[str] = []
    while number > 1 and lines[number - 2].strip().startswith("#"):
        number -= 1
        above.insert(0, comments[number])
    return " ".join(above)


def describe(schema: Schema, types: Mapping[str, type[Config]]) -> Schema:
    """The schema of a section, each of its properties with a description; `types` has the classes by their names; in
    place.
    """
    for part in (schema, *schema.get("$defs", {}).values()):
        texts = descriptions(types[part["title"]])
        for name, property_ in part["properties"].items():
            if name in texts:
                property_["description"] = texts[name]
    return schema


def parts(config_type: type[Config]) -> dict[str, type[Config]]:
    """The class of a section and those of its parts, by their names."""
    classes = {config_type.__name__: config_type}
    for field in config_type.model_fields.values():
        for part in _configs(field.annotation):
            classes |= parts(part)
    return classes


def _configs(annotation: object) -> Iterator[type[Config]]:
    if isinstance(annotation, type) and issubclass(annotation, Config):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _configs(inner)


def page(schema: Schema, values: Mapping[str, object]) -> str:
    """docs/parameters.md: every key of every section with its default, what it may be, and what it means."""
    lines = [
        "# Parameters",
        "",
        "Made by `make contract` from the stages' Configs (tasks/\\*/configs) and params.yaml. `posttrain run "
        "--set KEY=VALUE` changes one.",
    ]
    for section, part in schema["properties"].items():
        if "properties" not in part:
            lines += ["", f"`{section}`, by default {_shown(values[section])}: {part['description']}"]
            continue
        lines += ["", f"## {section}", "", part["description"].split("\n")[0], ""]
        lines += ["| key | default | may be | meaning |", "|---|---|---|---|"]
        lines += [f"| {' | '.join(row)} |" for row in _rows(part, schema, values[section], "")]
    return "\n".join(lines) + "\n"


def _rows(part: Schema, schema: Schema, values: object, prefix: str) -> Iterator[list[str]]:
    for name, below in part["properties"].items():
        below, value = resolved(below, schema), values.get(name) if isinstance(values, Mapping) else None
        meaning, entry = below.get("description", ""), _entry(below, schema)
        inner = entry if entry is not None else _section(below, schema)
        if "properties" in inner and "anyOf" in below:
            yield [f"`{prefix}{name}`", _cell(_shown(value)), "keys with values or null", _cell(meaning)]
            yield from _rows(inner, schema, value, f"{prefix}{name}.")
        elif "properties" in inner:
            key = f"{prefix}{name}" + (".*" if entry is not None else "")
            yield [f"`{key}`", "", "keys with values", _cell(meaning)]
            entries = list(value.values() if isinstance(value, Mapping) else value or ())
            yield from _rows(inner, schema, value if entry is None else next(iter(entries), {}), f"{key}.")
        else:
            yield [
                f"`{prefix}{name}`",
                _cell(_shown(value)),
                _cell(expected(dict(below), dict(schema))),
                _cell(meaning),
            ]


def _entry(part: Schema, schema: Schema) -> Schema | None:
    """The schema of an entry of a list of sections, or of a dictionary whose keys are the user's; None for anything
    else.
    """
    below = part.get("additionalProperties") or part.get("items")
    entry_schema = resolved(below, schema) if isinstance(below, dict) else {}
    return entry_schema if "properties" in entry_schema else None


def _section(part: Schema, schema: Schema) -> Schema:
    """The part itself; of a choice between a section and null the section."""
    choices = [resolved(choice, schema) for choice in part.get("anyOf", [])]
    return next((choice for choice in choices if "properties" in choice), part)


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return f"`{text if len(text) <= 60 else text[:57] + '...'}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
