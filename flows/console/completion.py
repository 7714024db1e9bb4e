"""What a shell offers when Tab is pressed: flows, stages, keys of params.yaml and presets, read from files alone.

Tab has to answer at once, so nothing of DVC, MLflow or torch is imported. A stage's branches are those in dvc.lock.
A repository that cannot be read offers nothing, since a shell would print an error into the line being typed.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from flows.params.files import PARAMS, ParameterError, find_root, list_preset_files, parse_params, read_text

FLOWS = ("language", "offline", "agents")
STAGE = re.compile(r"^  ([^\s#:]+):\s*$", re.MULTILINE)
PATH = re.compile(r"^    - path: (data/\S+)\s*$", re.MULTILINE)


def complete_targets(incomplete: str) -> list[str]:
    """Flows and stages that begin with the typed text."""
    return _filter_by_prefix(incomplete, [*FLOWS, *_iterate_stage_names()])


def complete_stages(incomplete: str) -> list[str]:
    """Stages that begin with the typed text, and their branches that have run."""
    return _filter_by_prefix(incomplete, _iterate_stage_names())


def complete_outputs(incomplete: str) -> list[str]:
    """Stages and their branches that have run, and the paths in data/ that they read and made, that begin with the
    typed text.
    """
    root = _find_repository_root()
    lock = root / "dvc.lock" if root else None
    paths = PATH.findall(lock.read_text(errors="replace")) if lock and lock.is_file() else []
    return _filter_by_prefix(incomplete, [*_iterate_stage_names(), *paths])


def complete_checkpoints(incomplete: str) -> list[str]:
    """Stages whose folder in data/ holds a model, and such folders, that begin with the typed text."""
    root = _find_repository_root()
    folders = sorted(file.parent.name for file in root.glob("data/*/config.json")) if root else []
    return _filter_by_prefix(incomplete, [*folders, *(f"data/{name}" for name in folders)])


def complete_param_edits(incomplete: str) -> list[str]:
    """`SECTION.KEY=` for each value of params.yaml that begins with the typed text."""
    return _filter_by_prefix(incomplete, (f"{key}=" for key, value in _iterate_params() if not isinstance(value, dict)))


def complete_param_keys(incomplete: str) -> list[str]:
    """Sections and keys of params.yaml that begin with the typed text."""
    return _filter_by_prefix(incomplete, (key for key, _ in _iterate_params()))


def complete_presets(incomplete: str) -> list[str]:
    """Presets that begin with the typed text."""
    root = _find_repository_root()
    return _filter_by_prefix(incomplete, sorted(list_preset_files(root)) if root else [])


def _filter_by_prefix(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _find_repository_root() -> Path | None:
    try:
        return find_root()
    except (ParameterError, OSError):
        return None


def _iterate_stage_names() -> Iterator[str]:
    for name in ("dvc.yaml", "dvc.lock"):
        if (root := _find_repository_root()) and (root / name).is_file():
            yield from STAGE.findall((root / name).read_text(errors="replace"))


def _iterate_params() -> Iterator[tuple[str, Any]]:
    if root := _find_repository_root():
        try:
            yield from _iterate_nested_items(parse_params(read_text(root / PARAMS)))
        except ParameterError:
            return


def _iterate_nested_items(data: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in data.items() if isinstance(data, dict) else ():
        yield f"{above}{name}", value
        yield from _iterate_nested_items(value, f"{above}{name}.")
