"""What each parameter means, from the comments of the Configs: descriptions in params.schema.json, and the pages of
docs/parameters.

A comment stands behind its field, or alone in the lines before it.
"""

import inspect
import io
import json
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tasks import reference_pages
from tasks.common.config import BRANCHES, Config, Schema
from tasks.common.config_faults import describe_expected_value, resolve_schema_reference, shorten_text
from tasks.reference_pages import DocumentedStage

FIELD = re.compile(r"    (\w+): ")
VALUES = re.compile(r"\S+(:| \||  ?->) ")
LONGEST_CELL = 65  # characters of what a key may be; a longer text stands in the wide column, behind the meaning
HEADER = ("key", "default", "may be", "meaning")
INTRODUCTION = f"""\
{reference_pages.NOTE}
# Parameters

Each stage has a page with the keys of its section of [params.yaml](../../params.yaml): the default of a key, what it
may be and what it means. `make contract` writes the pages from params.yaml and from the Configs of the stages.

- `posttrain run --set SECTION.KEY=VALUE` changes a value and runs the stages that depend on it.
- `posttrain explain SECTION.KEY` prints what a key means.
- In a key, `*` stands for each entry of a list or of keys with values. Its default is the one of the first entry.
- A default that ends in `...` is cut off; params.yaml has all of it."""


def read_field_descriptions(config_type: type[Config]) -> dict[str, str]:
    """Field -> its comment as a sentence, of the class and of those that it inherits from."""
    comments: dict[str, str] = {}
    for base in reversed(config_type.__mro__):
        if issubclass(base, Config) and base is not Config:
            comments |= dict(_iterate_commented_fields(inspect.getsource(base)))
    return comments


def _iterate_commented_fields(source: str) -> Iterator[tuple[str, str]]:
    lines = source.splitlines()
    comments = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments[token.start[0]] = token.string.lstrip("# ")
    for number, line in enumerate(lines, 1):
        field = FIELD.match(line)
        if field and (text := comments.get(number) or _join_comment_lines_above(lines, comments, number)):
            values = VALUES.match(text)  # begins with a value, whose spelling is kept
            yield field[1], f"{text if values else text[0].upper() + text[1:]}."


def _join_comment_lines_above(lines: Sequence[str], comments: Mapping[int, str], number: int) -> str:
    """The comment that fills the lines above this one, as one text; empty where there is none."""
    above: list[str] = []
    while number > 1 and lines[number - 2].strip().startswith("#"):
        number -= 1
        above.insert(0, comments[number])
    return " ".join(above)


def add_schema_descriptions(schema: Schema, types: Mapping[str, type[Config]]) -> Schema:
    """The schema of a section, each of its properties with a description; `types` has the classes by their names; in
    place.
    """
    for part in (schema, *schema.get("$defs", {}).values()):
        texts = read_field_descriptions(types[part["title"]])
        for name, property_ in part["properties"].items():
            if name in texts:
                property_["description"] = texts[name]
    return schema


def collect_config_classes(config_type: type[Config]) -> dict[str, type[Config]]:
    """The class of a section and those of its parts, by their names."""
    classes = {config_type.__name__: config_type}
    for field in config_type.model_fields.values():
        for part in _iterate_config_classes(field.annotation):
            classes |= collect_config_classes(part)
    return classes


def _iterate_config_classes(annotation: object) -> Iterator[type[Config]]:
    if isinstance(annotation, type) and issubclass(annotation, Config):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _iterate_config_classes(inner)


def render_parameter_pages(
    schema: Schema, values: Mapping[str, Any], stages: Mapping[str, DocumentedStage]
) -> dict[str, str]:
    """Name of each page of docs/parameters -> its text."""
    texts = {f"{name}.md": _render_stage_page(name, stage, schema, values) for name, stage in stages.items()}
    return {reference_pages.INDEX: _render_index_page(schema, values, stages), **texts}


def _render_index_page(schema: Schema, values: Mapping[str, Any], stages: Mapping[str, DocumentedStage]) -> str:
    seed = schema["properties"]["seed"]
    entries = schema["properties"][BRANCHES]
    branched = ", ".join(f"[{name}]({name}.md#branches)" for name in entries["properties"])
    lines = [INTRODUCTION, *reference_pages.render_index_lines(stages), "", "## Shared by several stages", ""]
    lines += [
        f"- `seed`, by default {_format_json_cell(values['seed'])}: {seed['description']}",
        f"- `{BRANCHES}`: {entries['description']} The pages of the stages have its keys: {branched}.",
    ]
    [(prefix, shared)] = schema["patternProperties"].items()
    lines += [f"- Entries whose name begins with `x-`: {shared['description']}"]
    lines += [f"    - {_format_shared_entry(name, values[name])}" for name in values if re.match(prefix, name)]
    return "\n".join(lines) + "\n"


def _format_shared_entry(name: str, value: Any) -> str:
    keys = ", ".join(f"`{key}`" for key in value) if isinstance(value, Mapping) else _format_json_cell(value)
    return f"`{name}`: {keys}"


def _render_stage_page(name: str, stage: DocumentedStage, schema: Schema, values: Mapping[str, Any]) -> str:
    lines = [
        reference_pages.NOTE,
        f"# Parameters of {name}",
        "",
        f"{stage.purpose}. [Metrics of {name}](../metrics/{name}.md), [all stages]({reference_pages.INDEX})",
    ]
    if section := schema["properties"].get(name):
        first_line = section["description"].split("\n")[0]
        lines += ["", f"{first_line} `posttrain run --set {name}.KEY=VALUE` changes a value.", ""]
        lines += reference_pages.render_reference_table(HEADER, [*_iterate_key_rows(section, schema, values[name], "")])
    if stage.branches:
        lines += ["", "## Branches", "", *_iterate_branch_lines(name, stage.branches, schema, values)]
    return "\n".join(lines) + "\n"


def _iterate_branch_lines(
    name: str, branches: tuple[str, str], schema: Schema, values: Mapping[str, Any]
) -> Iterator[str]:
    """What the stage runs for, and the keys of an entry where the entries are the stage's own."""
    section, key = branches
    if branches != (BRANCHES, name):
        page = f"{key}.md#branches" if section == BRANCHES else f"{section}.md"
        yield f"The stage runs once for each entry of [{section}.{key}]({page})."
        return
    part = resolve_schema_reference(schema["properties"][BRANCHES]["properties"][name], schema)
    entries = values[BRANCHES].get(name)
    yield f"The stage runs once for each entry of `{BRANCHES}.{name}`. {part['description']}"
    entry = _find_entry_schema(part, schema)
    if entry is None:
        yield f"By default: {_format_json_cell(entries)}."
    else:
        yield "In the keys, `*` stands for the name of an entry."
        first: Mapping[str, Any] = next(iter(entries.values()), {}) if entries else {}
        yield from (
            "",
            *reference_pages.render_reference_table(HEADER, [*_iterate_key_rows(entry, schema, first, "*.")]),
        )


def _iterate_key_rows(part: Schema, schema: Schema, values: object, prefix: str) -> Iterator[tuple[str, ...]]:
    for name, below in part["properties"].items():
        below = resolve_schema_reference(below, schema)
        value = values.get(name) if isinstance(values, Mapping) else None
        meaning = below.get("description", "")
        entry = _find_entry_schema(below, schema)
        inner = entry if entry is not None else _unwrap_optional_section(below, schema)
        if "properties" in inner and "anyOf" in below:
            yield f"`{prefix}{name}`", _format_json_cell(value), "keys with values or null", meaning
            yield from _iterate_key_rows(inner, schema, value, f"{prefix}{name}.")
        elif "properties" in inner:
            key = f"{prefix}{name}" + (".*" if entry is not None else "")
            yield f"`{key}`", "", "keys with values", meaning
            entries = list(value.values() if isinstance(value, Mapping) else value or ())
            yield from _iterate_key_rows(inner, schema, value if entry is None else next(iter(entries), {}), f"{key}.")
        else:
            yield (
                f"`{prefix}{name}`",
                _format_json_cell(value),
                *_format_accepted_and_meaning(describe_expected_value(below, schema), meaning),
            )


def _format_accepted_and_meaning(values: str, meaning: str) -> tuple[str, str]:
    """The cells of what a key may be and of its meaning."""
    if len(values) <= LONGEST_CELL:
        return values, meaning
    return "see meaning", f"{meaning} It may be {values}."


def _find_entry_schema(part: Schema, schema: Schema) -> Schema | None:
    """The schema of an entry of a list of sections, or of a dictionary whose keys are the user's; None for anything
    else.
    """
    below = part.get("additionalProperties") or part.get("items")
    entry_schema = resolve_schema_reference(below, schema) if isinstance(below, dict) else {}
    return entry_schema if "properties" in entry_schema else None


def _unwrap_optional_section(part: Schema, schema: Schema) -> Schema:
    """The part itself; of a choice between a section and null the section."""
    choices = [resolve_schema_reference(choice, schema) for choice in part.get("anyOf", [])]
    return next((choice for choice in choices if "properties" in choice), part)


def _format_json_cell(value: object) -> str:
    return f"`{shorten_text(json.dumps(value, ensure_ascii=False))}`"
