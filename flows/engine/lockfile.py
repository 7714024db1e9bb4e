"""dvc.lock, read and written so that a kill at any moment leaves it whole.

DVC writes it in place; a torn one makes every later command fail. The text is the one that DVC would have written.
"""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dvc.stage import PipelineStage

LOCKFILE = "dvc.lock"


def read_entries(root: Path) -> dict[str, Any]:
    """What dvc.lock records of each stage: `cmd`, `deps`, `params`, `outs`."""
    from dvc.utils.serialize import load_yaml

    path = root / LOCKFILE
    return dict(load_yaml(str(path)).get("stages") or {}) if path.exists() else {}


def write_entry(root: Path, stage: "PipelineStage") -> None:
    """Record a stage as DVC would, by a temporary file that replaces dvc.lock only when it is safely on disk."""
    from dvc.stage.serialize import to_lockfile
    from dvc.utils.serialize import modify_yaml

    path, temporary = root / LOCKFILE, root / f".{LOCKFILE}.new"
    temporary.unlink(missing_ok=True)
    if path.exists():
        shutil.copyfile(path, temporary)
    with modify_yaml(str(temporary)) as content:
        if not content:
            content["schema"] = "2.0"
        content.setdefault("stages", {}).update(to_lockfile(stage))
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)
    stage.repo.scm_context.track_file(LOCKFILE)
