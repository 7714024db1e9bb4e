"""params.yaml checked against the stages' own Configs. Each fault is reported in one line.

Only a stage's Config is imported, so a misspelt or mistyped parameter is found at once, by the class that the stage
itself uses.
"""

import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from flows.params.files import PARAMS, SEED, ParameterError
from tasks.common.config import BRANCHES, SAID, Config
from tasks.common.config_faults import (
    Key,
    SectionError,
    format_names_hint,
    format_short_value,
    has_user_chosen_keys,
    join_first_names,
    map_params_key_to_config_key,
    parse_stage_config,
)

SHARED = "x-"  # begins the names of what sections take in with `<<: *NAME`; it is no section itself
Sections = Mapping[str, type[Config]]
Configs = Mapping[str, Any]  # section -> its Config
Rule = Callable[[Configs], Iterable[tuple[str, str]]]


def load_config_classes(root: Path) -> dict[str, type[Config]]:
    """The Config of each stage of the repository, such as DpoConfig in tasks/language/configs/dpo.py for the stage
    `dpo`; those of extensions stand in tasks/extensions/*/configs.

    A repository with other stages has no Configs, and its params.yaml may hold anything.
    """
    config_types = {}
    for pattern in ("tasks/*/configs/*.py", "tasks/extensions/*/configs/*.py"):
        for file in sorted(root.glob(pattern)):
            stage = file.stem
            if (file.parents[1] / file.name).is_file() and stage != "__init__":
                module = ".".join(file.relative_to(root).with_suffix("").parts)
                config_types[stage] = _import_config_class(module, "".join(map(str.title, stage.split("_"))) + "Config")
    return config_types


def _import_config_class(module: str, name: str) -> type[Config]:
    try:
        config_type: type[Config] = getattr(import_module(module), name)
        return config_type
    except (ModuleNotFoundError, AttributeError):
        home = Path(__file__).parents[2]
        raise ParameterError(
            f"{module.replace('.', '/')}.py: no class {name} found; posttrain runs the code in {home}"
        ) from None


def parse_and_check_configs(
    data: object, types: Sections, sources: Mapping[Key, str], together: Rule = lambda configs: ()
) -> dict[str, Config]:
    """The sections as Configs; ParameterError for the first fault. If an edit made the fault, the line begins with that
    edit.

    `together` is called with all Configs, and yields each key that does not fit with what was expected of it.
    """
    if not isinstance(data := {} if data is None else data, dict):
        raise ParameterError(f"{PARAMS}: expected sections with parameters, got {format_short_value(data)}")
    if not types:
        return {}
    if SEED in data and not _is_valid_seed(data[SEED]):
        raise _make_parameter_error(
            (SEED,), f"expected a whole number from 0 to {2**32 - 1}, got {format_short_value(data[SEED])}", sources
        )
    entries = data.get(BRANCHES, {})
    if not isinstance(entries, dict):
        raise _make_parameter_error(
            (BRANCHES,), f"expected stages with what they are run for, got {format_short_value(entries)}", sources
        )
    stages = [name for name, config_type in types.items() if config_type.branched_by]
    for name in entries:
        if name not in stages:
            raise _make_parameter_error(
                (BRANCHES, str(name)), f"unknown stage{format_names_hint(str(name), stages)}", sources
            )
    for name in data:
        if name not in types and name not in (SEED, BRANCHES) and not str(name).startswith(SHARED):
            close = difflib.get_close_matches(str(name), list(types), 1, 0.5)
            hint = f"did you mean {close[0]}?" if close else f"there are {join_first_names([*types])}"
            raise _make_parameter_error((str(name),), f"unknown section; {hint}", sources)
    configs = {}
    for name in types:
        try:
            configs[name] = parse_stage_config(name, types, data)
        except SectionError as error:
            raise _make_parameter_error(error.key, error.message, sources) from None
    for key, expected in together(configs):
        raise _make_parameter_error(tuple(key.split(".")), expected, sources)
    return configs


def _is_valid_seed(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32


def _make_parameter_error(key: Key, message: str, sources: Mapping[Key, str]) -> ParameterError:
    source = next(
        (name for edited, name in sources.items() if key[: len(edited)] == edited or edited[: len(key)] == key), ""
    )
    prefix = f"{source} " if source == "--set" else f"{source or PARAMS}: "
    return ParameterError(f"{prefix}{'.'.join(key)}: {message}")


def find_idle_params(data: Any, types: Sections) -> Iterator[tuple[list[Key], str]]:
    """Groups of parameters that have no effect at these values, with the values that cause it, by the Configs' idle
    rules.
    """
    for section, config_type in types.items():
        for rule in config_type.list_idle_rules():
            try:
                values_by_path = {
                    path: list(_iterate_values_at_path(data[section], path.split("."))) for path in rule.where
                }
            except (LookupError, TypeError, AttributeError):  # the file lacks the key, which is another fault
                continue
            if rule.neutral is SAID and all(
                v in rule.where[path] for path, values in values_by_path.items() for v in values
            ):
                seen = {path: dict.fromkeys(map(_format_value, values)) for path, values in values_by_path.items()}
                why = [f"{section}.{path} {' or '.join(values)}".strip() for path, values in seen.items()]
                yield [(section, *key.split(".")) for key in rule.keys], " and ".join(why)


def _iterate_values_at_path(data: Any, path: Sequence[str]) -> Iterator[object]:
    """The value at a place; a `*` in the place stands for all entries."""
    if not path:
        yield data
    elif path[0] == "*":
        for entry in data.values() if isinstance(data, dict) else data:
            yield from _iterate_values_at_path(entry, path[1:])
    else:
        yield from _iterate_values_at_path(data[path[0]], path[1:])


def _format_value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def is_user_keyed_dictionary(types: Sections, key: Key) -> bool:
    """Whether the key holds a dictionary whose keys the user chooses, such as `branches.transitions`."""
    key = map_params_key_to_config_key(key, types)
    return len(key) > 1 and key[0] in types and has_user_chosen_keys(types[key[0]], key[1:])
