"""What of the code each stage is made of: data/code/STAGE.json, as the stage `code` would write it now.

A plan must know it before `code` has run, so that an edit which no stage reaches is an edit that runs nothing.
"""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.engine.dvc_changes import Seen
from flows.engine.dvc_lock import CODE as FOLDER
from flows.engine.dvc_repository import PlanError

if TYPE_CHECKING:
    from dvc.stage import PipelineStage

__all__ = ["FOLDER", "SOURCE", "STAGE", "files_of", "hashes", "look_ahead", "working_files"]

STAGE = "code"
SOURCE = "tasks"  # the folder that all stages' code is in
_parsed: dict[tuple[str, bytes], Any] = {}  # modules that several versions of the code share


def look_ahead(root: Path, stages: "Iterable[PipelineStage]", seen: Seen) -> None:
    """Note in `seen` how each dep of these stages below data/code will differ from its record; PlanError where a module is no Python."""
    now = hashes(working_files(root))
    for stage in stages:
        for dep in stage.deps:
            path = str(getattr(dep, "def_path", ""))
            if path in now:
                recorded = dep.hash_info.value if dep.hash_info else None
                state = {} if recorded == now[path] else {path: "modified" if recorded else "new"}
                seen[dep.fs_path, recorded] = state


def working_files(root: Path) -> Mapping[str, bytes]:
    """Path in the repository -> content of all files below tasks/ as they are now."""
    from tasks.code import stages

    return stages.working_files(root)


def hashes(files: Mapping[str, bytes]) -> dict[str, str]:
    """Path below data/code -> DVC's hash of what the stage `code` writes there, where tasks/ has these files.

    PlanError where a module is no Python.
    """
    from tasks.code import stages

    return {path: stages.md5(content) for path, content in _contents(tuple(sorted(files.items()))).items()}


def files_of(root: Path, path: str) -> Mapping[str, str]:
    """What the stage `code` would write to this path below data/code now: file -> hash of what of it the stage reaches."""
    return dict(json.loads(_contents(tuple(sorted(working_files(root).items()))).get(path, b"{}")))


@lru_cache(maxsize=2)  # some seconds for each version of the code, of which one command asks several times
def _contents(files: tuple[tuple[str, bytes], ...]) -> Mapping[str, bytes]:
    from tasks.code import stages

    try:
        return {path.as_posix(): content for path, content in stages.contents(dict(files), _parsed).items()}
    except ValueError as error:
        raise PlanError(str(error)) from None
