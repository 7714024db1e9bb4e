"""Code that a user chooses by a name in params.yaml: it counts for the stages whose section names it, and a file that
nobody names for none.

The stage `code` has the keys below which such names stand as its params (tasks/contract.py), so that plain `dvc repro`
runs it when a name is chosen.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

PARAMS = "params.yaml"
Choices = Mapping[str, tuple[str, ...]]  # a dotted key of params.yaml -> the names that stand there


@dataclass(frozen=True)
class Registry:
    """A folder of modules, each with what is looked up by the module's name."""

    folder: str
    lookup: str  # the definition that looks a name up, of which alone the stages that reach it depend on the folder
    key: str  # of the stage's own section: a dictionary whose keys are names
    rows: str  # key of a list in another section, each row of which may choose a name for the stage
    field: str  # of these rows


REGISTRIES = (
    Registry(
        folder="tasks.language.rewards.by_name",
        lookup="tasks.language.rewards.reward.load",
        key="reward",
        rows="mixture.datasets",
        field="reward",
    ),
)


def collect_choices(params: Mapping[str, Any]) -> Choices:
    """What params.yaml chooses, by the keys of REGISTRIES that it has."""
    names: dict[str, set[str]] = {}
    for registry in REGISTRIES:
        for section in params:
            chosen = _get_at_dotted_key(params, f"{section}.{registry.key}")
            names.setdefault(f"{section}.{registry.key}", set()).update(chosen if isinstance(chosen, dict) else ())
        rows = _get_at_dotted_key(params, registry.rows)
        for row in rows if isinstance(rows, list) else ():
            names.setdefault(registry.rows, set()).add(str(_get_at_dotted_key(row, registry.field)))
    return {key: tuple(sorted(map(str, chosen))) for key, chosen in sorted(names.items()) if chosen}


def list_chosen_modules(stage: str, chosen: Choices) -> dict[str, list[str]]:
    """The definition that looks names up -> the modules that it looks up for a stage whose section has the key; not all
    need to exist.
    """
    modules = {}
    for registry in REGISTRIES:
        if names := chosen.get(f"{stage}.{registry.key}"):
            both = {*names, *chosen.get(registry.rows, ())}
            modules[registry.lookup] = [f"{registry.folder}.{name}" for name in sorted(both)]
    return modules


def parse_params_yaml(content: bytes | None) -> dict[str, Any]:
    """params.yaml; nothing where there is none. ValueError where it is no YAML with sections."""
    try:
        params = YAML(typ="safe").load(content or b"")
    except (YAMLError, UnicodeDecodeError):
        params = []
    if not isinstance(params, dict | None):
        raise ValueError(f"{PARAMS}: expected YAML with sections")
    return params or {}


def read_working_choices(root: Path) -> Choices:
    """What the repository's params.yaml chooses as it is now."""
    file = root / PARAMS
    return collect_choices(parse_params_yaml(file.read_bytes() if file.is_file() else None))


def _get_at_dotted_key(value: Any, key: str) -> Any:
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
