"""What of the code each stage is made of: data/code/STAGE.json, as the stage `code` would write it now.

A plan must know it before `code` has run, so that an edit which no stage reaches is an edit that runs nothing.
"""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from flows.engine.dvc_changes import Seen
from flows.engine.dvc_lock import CODE as FOLDER
from flows.engine.dvc_repository import PlanError

if TYPE_CHECKING:
    from flows.engine.dvc_closure import PipelineStage
    from tasks.code.registries import Choices

__all__ = [
    "FOLDER",
    "SOURCE",
    "STAGE",
    "collect_choices_of_recorded_params",
    "compute_code_dep_source_hashes",
    "compute_stage_code_hashes",
    "list_chosen_modules",
    "read_working_choices",
    "read_working_files",
    "record_code_dep_states",
]
T = TypeVar("T")

STAGE = "code"
SOURCE = "tasks"  # the folder that all stages' code is in
_parsed: dict[tuple[str, bytes], Any] = {}  # modules that several versions of the code share


def record_code_dep_states(root: Path, stages: "Iterable[PipelineStage]", seen: Seen) -> None:
    """Note in `seen` how each dep of these stages below data/code will differ from its record; PlanError where a module
    is no Python.
    """
    now = compute_stage_code_hashes(read_working_files(root), read_working_choices(root))
    for stage in stages:
        for dep in stage.deps:
            path = str(getattr(dep, "def_path", ""))
            if path in now:
                recorded = dep.hash_info.value if dep.hash_info else None
                state = {} if recorded == now[path] else {path: "modified" if recorded else "new"}
                seen[dep.fs_path, recorded] = state


def read_working_files(root: Path) -> Mapping[str, bytes]:
    """Path in the repository -> content of all files below tasks/ as they are now."""
    from tasks.code import stages

    return stages.read_working_files(root)


def read_working_choices(root: Path) -> "Choices":
    """The names of code that params.yaml chooses as it is now; PlanError where it is no YAML."""
    from tasks.code import registries

    try:
        return registries.read_working_choices(root)
    except ValueError as error:
        raise PlanError(str(error)) from None


def list_chosen_modules(stage: str, params: Mapping[str, Any]) -> list[str]:
    """The modules that this stage's section chooses, where the stage `code` has these params, by their dotted keys."""
    from tasks.code import registries

    nested: dict[str, dict[str, Any]] = {}
    for key, value in params.items():
        section, _, name = key.partition(".")
        nested.setdefault(section, {})[name] = value
    return sorted(
        module
        for modules in registries.list_chosen_modules(stage, registries.collect_choices(nested)).values()
        for module in modules
    )


def collect_choices_of_recorded_params(content: bytes | None, recorded: Mapping[str, Any]) -> "Choices":
    """Those of a params.yaml with the values that a stage is recorded with in its place; PlanError where it is no
    YAML.
    """
    from tasks.code import registries

    try:
        return registries.collect_choices({**registries.parse_params_yaml(content), **recorded})
    except ValueError as error:
        raise PlanError(str(error)) from None


def compute_stage_code_hashes(files: Mapping[str, bytes], chosen: "Choices") -> dict[str, str]:
    """Path below data/code -> DVC's hash of what the stage `code` writes there, where tasks/ has these files and
    params.yaml these choices.

    PlanError where a module is no Python.
    """
    from tasks.code import stages

    return {
        path: stages.compute_md5(content)
        for path, content in _compute_stage_code_contents(_sort_items(files), _sort_items(chosen)).items()
    }


def compute_code_dep_source_hashes(root: Path, path: str) -> Mapping[str, str]:
    """What the stage `code` would write to this path below data/code now: file -> hash of what of it the stage
    reaches.
    """
    return dict(
        json.loads(
            _compute_stage_code_contents(
                _sort_items(read_working_files(root)), _sort_items(read_working_choices(root))
            ).get(path, b"{}")
        )
    )


def _sort_items(entries: Mapping[str, T]) -> tuple[tuple[str, T], ...]:
    return tuple(sorted(entries.items()))


@lru_cache(maxsize=2)  # some seconds for each version of the code, of which one command asks several times
def _compute_stage_code_contents(
    files: tuple[tuple[str, bytes], ...], chosen: tuple[tuple[str, tuple[str, ...]], ...]
) -> Mapping[str, bytes]:
    from tasks.code import stages

    try:
        made = stages.build_code_files(dict(files), dict(chosen), _parsed)
    except ValueError as error:
        raise PlanError(str(error)) from None
    return {path.as_posix(): content for path, content in made.items()}
