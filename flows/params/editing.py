"""Edits of params.yaml: it is read as DVC reads it, checked against the stages' Configs, and changed value by value.

An edit replaces the text of one value and nothing else, so comments, order and the spelling of every other number
stay. The file is written, atomically, only if all of it is valid afterwards.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

from flows.params import rules
from flows.params.checking import Sections, find_idle_params, is_user_keyed_dictionary, parse_and_check_configs
from flows.params.files import (
    PARAMS,
    PRESETS,
    SEED,
    ParameterError,
    list_preset_files,
    parse_params,
    parse_yaml_text,
    read_text,
    write_file_atomically,
)
from tasks.common.config_faults import Key, format_names_hint, format_short_value, shorten_text


@dataclass(frozen=True)
class Edit:
    """One value to set: `text` as it will stand in the file, `source` as an error names where it came from."""

    key: Key
    value: object
    text: str
    source: str


def check_params(root: Path, types: Sections) -> None:
    """Raise ParameterError unless the stages accept every value of params.yaml."""
    parse_and_check_configs(parse_params(read_text(root / PARAMS)), types, {}, rules.find_reference_faults)


def check_params_consistency(
    root: Path, types: Sections, stages: Collection[str], out_of_date: Collection[str], text: str | None = None
) -> None:
    """Raise ParameterError unless the values of these stages' sections fit each other, the graph and the files on disk.

    Files that no stage makes are looked for only if a stage that is `out_of_date` needs them. `text` stands in the
    place of params.yaml's.
    """
    configs = parse_and_check_configs(parse_params(read_text(root / PARAMS) if text is None else text), types, {})
    rules.check_rules(rules.RuleInput(configs, stages, out_of_date, root))


def list_idle_param_warnings(root: Path, types: Sections, sections: Collection[str], committed: str = "") -> list[str]:
    """One line for each group of parameters of these sections that do nothing at the file's values.

    With the `committed` text of params.yaml it is about what differs from that: parameters with another value, and
    those that did something.
    """
    values = parse_params(read_text(root / PARAMS))
    before = None
    with suppress(ParameterError):  # what was committed may be no YAML
        before = parse_params(committed)
    same = {
        key
        for keys, _ in find_idle_params(before, types)
        for key in keys
        if _format_json(_get_nested_value(values, key)) == _format_json(_get_nested_value(before, key))
    }
    groups = [([key for key in keys if key not in same], why) for keys, why in find_idle_params(values, types)]
    return [_format_idle_warning(keys, why) for keys, why in groups if keys and keys[0][0] in sections]


def read_params_bytes(root: Path) -> bytes:
    """The file as it is, for `write` to put it back."""
    return read_text(root / PARAMS).encode()


def get_param_value(root: Path, *key: str) -> object:
    """The value of a key of params.yaml; None without one."""
    return _get_nested_value(parse_params(read_text(root / PARAMS)), key)


def parse_setting(argument: str) -> Edit:
    """The edit that `--set section.key=value` asks for; the value is YAML, as in the file."""
    key, equals, text = argument.partition("=")
    parts = tuple(key.strip().split("."))
    if not equals or not all(parts) or (len(parts) < 2 and parts != (SEED,)):
        raise ParameterError(f"--set {shorten_text(argument)}: expected section.key=value, such as dpo.beta=0.2")
    return Edit(parts, parse_yaml_text(text, f"--set {key.strip()}"), text.strip(), "--set")


def load_preset_edits(root: Path, types: Sections, name: str) -> list[Edit]:
    """The edits that lay the preset NAME over params.yaml; dictionaries whose keys the user chooses are replaced as a
    whole.
    """
    files = list_preset_files(root)
    if name not in files:
        hint = f"`posttrain preset` lists them{format_names_hint(name, sorted(files))}" if files else "there are none"
        raise ParameterError(f"preset {name}: there is no {PRESETS}/{name}.yaml; {hint}")
    laid = _Laid(files[name].relative_to(root).as_posix(), read_text(files[name]), types)
    values = parse_yaml_text(laid.text, laid.source)
    if not isinstance(values, dict) or not values:
        raise ParameterError(f"{laid.source}: expected sections of params.yaml with the values to change")
    return list(laid.edits(YAML(typ="safe").compose(laid.text), values))


def build_edits_from_text(root: Path, types: Sections, text: str, source: str) -> list[Edit]:
    """The edits that give params.yaml every value of another params.yaml, `text`; those that it has already are left
    out.
    """
    values = parse_yaml_text(text, source)
    now = parse_params(read_text(root / PARAMS))
    if not isinstance(values, dict):
        raise ParameterError(f"{source}: expected sections of params.yaml with values")
    edits = list(_Laid(source, text, types).edits(YAML(typ="safe").compose(text), values))
    seeds = [edit for edit in edits if edit.key == (SEED,)]
    if seeds:  # what follows it is compared with the file as the seed leaves it
        now = parse_params(_replace_seed(read_text(root / PARAMS), seeds[0]))
    return [
        edit
        for edit in edits
        if edit in seeds or _format_json(_get_nested_value(now, edit.key)) != _format_json(edit.value)
    ]


def edit_params(root: Path, types: Sections, edits: Sequence[Edit]) -> list[str]:
    """Write the edits to params.yaml; returns one line such as `dpo.beta: 0.1 -> 0.2` for each value that changed.

    Further lines name the parameters that have no effect now, if they were changed or had an effect before.
    """
    before = read_text(root / PARAMS)
    text, lines = apply_edits_to_text(before, types, edits)
    if text != before:
        write_file_atomically(root / PARAMS, text.encode())
    return lines


def apply_edits_to_text(before: str, types: Sections, edits: Sequence[Edit]) -> tuple[str, list[str]]:
    """The text of params.yaml with the edits, and the lines that `edit` returns; ParameterError unless all of it is
    valid.
    """
    text = before
    data = parse_params(text)
    if not isinstance(data, dict):
        raise ParameterError(f"{PARAMS}: expected sections with parameters, got {format_short_value(data)}")
    first = data
    for change in edits:
        if change.key == (SEED,):
            text = _replace_seed(text, change)
            data = parse_params(text)
    wanted = deepcopy(data)
    changes = {}
    for change in edits:
        _check_entry_exists(wanted, change, types)
        _set_nested_value(wanted, change)
    parse_and_check_configs(wanted, types, {change.key: change.source for change in edits}, rules.find_reference_faults)
    idle_before = {key for keys, _ in find_idle_params(first, types) for key in keys}
    for change in edits:
        old = _get_nested_value(first if change.key == (SEED,) else data, change.key)
        text, data = _replace_value_in_section(text, data, change)
        if _format_json(old) != _format_json(change.value):
            changes[change.key] = (
                f"{'.'.join(change.key)}: {format_short_value(old)} -> {format_short_value(change.value)}"
            )
    if parse_params(text) != wanted:  # each section was read by itself
        raise ParameterError(f"{PARAMS}: cannot be changed from here; edit the file")
    return (text if changes else before), [
        *changes.values(),
        *_iterate_newly_idle_warnings(data, idle_before, changes, types),
    ]


def _replace_seed(text: str, change: Edit) -> str:
    """The text with another seed for all sections that follow it."""
    match = re.search(rf"^{SEED}:[ \t]+(?:&\w+[ \t]+)?(\S+)", text, re.MULTILINE)
    if match is None:
        expected = f"`{SEED}: &{SEED} 0` on a line before all sections, and `{SEED}: *{SEED}` in those that follow it"
        raise ParameterError(f"{PARAMS}: {SEED}: missing; expected {expected}")
    return f"{text[: match.start(1)]}{_format_json(change.value)}{text[match.end(1) :]}"


@dataclass(frozen=True)
class _Laid:
    """A preset's text, with its source and the Configs, from which `edits` makes single edits."""

    source: str
    text: str
    types: Sections

    def edits(self, node: Node | None, data: Any, key: Key = ()) -> Iterator[Edit]:
        """The edits of what stands at a key; `node` is None where a merge key brings it there."""
        if isinstance(data, dict) and data and not is_user_keyed_dictionary(self.types, key):
            nodes = {str(name.value): value for name, value in node.value} if isinstance(node, MappingNode) else {}
            for name, value in data.items():
                yield from self.edits(nodes.get(name), value, (*key, name))
        elif isinstance(node, ScalarNode) or (isinstance(node, MappingNode) and data):
            margin = "\n" + " " * node.start_mark.column
            yield Edit(key, data, self.text[slice(*_get_node_span(node))].replace(margin, "\n"), self.source)
        else:
            yield Edit(key, data, _format_json(data), self.source)


def _iterate_newly_idle_warnings(
    data: object, idle_before: Collection[Key], changed: Iterable[Key], types: Sections
) -> Iterator[str]:
    """Lines on the keys that have no effect now, if they were changed or are not among those `idle_before` before the
    edit.
    """
    for keys, why in find_idle_params(data, types):
        touched = [
            key
            for key in keys
            if key not in idle_before or any(changed_key[: len(key)] == key for changed_key in changed)
        ]
        if touched:
            yield _format_idle_warning(touched, why)


def _format_idle_warning(keys: Sequence[Key], why: str) -> str:
    verb = "does" if len(keys) == 1 else "do"
    return f"{', '.join('.'.join(key) for key in keys)} {verb} nothing with {why}"


def _format_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _check_entry_exists(data: object, change: Edit, types: Sections) -> None:
    """Raise ParameterError if a change is to a part of an entry that does not exist, since its name is probably
    misspelt.
    """
    for depth in range(1, len(change.key) - 1):
        entries = _get_nested_value(data, change.key[:depth])
        name = change.key[depth]
        if isinstance(entries, dict) and name not in entries and is_user_keyed_dictionary(types, change.key[:depth]):
            key = ".".join(change.key[: depth + 1])
            raise ParameterError(f"{change.source} {key}: no such entry{format_names_hint(name, list(entries))}")


def _set_nested_value(data: Any, change: Edit) -> None:
    for part in change.key[:-1]:
        below = data.get(part)
        if not isinstance(below, dict):
            below = data[part] = {}
        data = below
    data[change.key[-1]] = change.value


def _get_nested_value(data: object, key: Iterable[str]) -> object:
    for part in key:
        data = data.get(part) if isinstance(data, dict) else None
    return data


def _replace_value_in_section(text: str, data: Any, change: Edit) -> tuple[str, Any]:
    """The same as `_replace`, on the text of the section alone where that can be read by itself: a whole file takes a
    tenth of a second.
    """
    name = change.key[0]
    match = re.search(rf"^{re.escape(name)}:.*\n(?:(?:[ #].*)?\n)*", text, re.MULTILINE)
    block = r"^[\w-]+:[ \t]+&\w+.*\n(?:(?:[ #].*)?\n)*"  # what the section may refer to
    anchors = "".join(re.findall(block, text, re.MULTILINE))
    with suppress(ParameterError):
        if match and (section_data := parse_yaml_text(anchors + match[0], PARAMS)).get(name) == data[name]:
            section, changed = _replace_value(anchors + match[0], section_data, change)
            if section.startswith(anchors):
                section = section.removeprefix(anchors)
                return text[: match.start()] + section + text[match.end() :], {**data, name: changed[name]}
    return _replace_value(text, data, change)


def _replace_value(text: str, data: Any, change: Edit) -> tuple[str, Any]:
    """Put the new value in place of the old one, and check by reading the text back that nothing else has changed."""
    wanted = deepcopy(data)
    _set_nested_value(wanted, change)
    if wanted == data and _format_json(_get_nested_value(data, change.key)) == _format_json(change.value):
        return text, data
    for start, end, spelt in _iterate_candidate_edits(text, change):
        edited = f"{text[:start]}{spelt}{text[end:]}"
        try:
            if parse_params(edited) == wanted:
                return edited, wanted
        except ParameterError:
            continue
    raise ParameterError(f"{PARAMS}: {'.'.join(change.key)}: cannot be changed from here; edit the file")


def _iterate_candidate_edits(text: str, change: Edit) -> Iterator[tuple[int, int, str]]:
    """Candidate edits of the text (start, end, new text), likeliest first: in place of the old value, or as a new
    entry.
    """
    span = _locate_value(text, change.key)
    above = None if span else _locate_value(text, change.key[:-1])
    for spelt in (change.text, _format_json(change.value)):
        if span:
            colon = text.rindex(":", 0, span[0]) + 1
            if "\n" in (between := text[colon : span[0]]) and not between.strip() and "\n" not in spelt:
                yield colon, span[1], f" {spelt}"  # a value on lines of its own moves to the key's line
            yield *span, " " * (span[0] == span[1]) + _indent_to_column(spelt, text, span[0])
        elif above:
            line = text.find("\n", above[1])
            margin = "\n" + " " * _compute_column(text, above[0])
            yield line, line, f"{margin}{change.key[-1]}: {spelt}"
            yield above[1] - 1, above[1] - 1, f", {change.key[-1]}: {spelt}"


def _indent_to_column(spelt: str, text: str, at: int) -> str:
    return spelt.replace("\n", "\n" + " " * _compute_column(text, at))


def _compute_column(text: str, at: int) -> int:
    return at - text.rfind("\n", 0, at) - 1


def _locate_value(text: str, key: Key) -> tuple[int, int] | None:
    """Start and end of a key's value in the text; None if the key is not there."""
    node = YAML(typ="safe").compose(text)
    after = 0
    for part in key:
        pairs = node.value if isinstance(node, MappingNode) else []
        name, node = next((pair for pair in pairs if str(pair[0].value) == part), (None, None))
        if name is None:
            return None
        after = text.index(":", name.end_mark.index) + 1
    if alias := re.compile(r"\s*(\*\w+)").match(text, after):  # the node itself stands where the alias points to
        return alias.span(1)
    start, end = _get_node_span(node)
    return (start, end) if start < end else (after, after)  # an empty value is marked at what follows it


def _get_node_span(node: Any) -> tuple[int, int]:
    """Start and end of a value's text; a block collection ends with its last value, before any comment."""
    last = node
    while not isinstance(last, ScalarNode) and not last.flow_style and last.value:
        last = last.value[-1][1] if isinstance(last, MappingNode) else last.value[-1]
    return node.start_mark.index, last.end_mark.index
