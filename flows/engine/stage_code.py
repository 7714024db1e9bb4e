"""What of the code each stage is made of: data/code/STAGE.json, as the stage `code` would write it now.

A plan must know it before `code` has run, so that an edit which no stage reaches is an edit that runs nothing.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.engine.dvc_changes import Seen
from flows.engine.dvc_repository import PlanError

if TYPE_CHECKING:
    from dvc.stage import PipelineStage

STAGE = "code"
FOLDER = "data/code/"
SOURCE = "tasks"  # the folder that all stages' code is in
Known = dict[tuple[str, bytes], Any]


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


def hashes(files: Mapping[str, bytes], known: Known | None = None) -> dict[str, str]:
    """Path below data/code -> DVC's hash of what the stage `code` writes there, where tasks/ has these files.

    `known` keeps modules that several versions of the code share. PlanError where a module is no Python.
    """
    from tasks.code import stages

    try:
        made = stages.contents(files, known)
    except ValueError as error:
        raise PlanError(str(error)) from None
    return {path.as_posix(): hashlib.md5(content, usedforsecurity=False).hexdigest() for path, content in made.items()}


def files_of(root: Path, path: str) -> Mapping[str, str]:
    """What the stage `code` would write to this path below data/code now: file -> hash of what of it the stage reaches."""
    from tasks.code import stages

    code = stages.StageCode(stages.working_files(root))
    module = code.modules().get(Path(path).stem)
    return code.hashes(module) if module else {}
