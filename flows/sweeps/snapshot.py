"""The repository's files as they are when a sweep begins: later edits do not reach it, and the workspace is free
meanwhile.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flows.engine.dvc_repository import PlanError
from flows.lineage.reproduction import checkout
from flows.params.files import PARAMS
from tasks.common import source_code
from tasks.common.source_code import CodeState

CONFIG = Path(".dvc/config")


def take_snapshot(root: Path, target: Path) -> CodeState:
    """Copy the working files to the new folder `target`; the state of git that they were in.

    PlanError if they change meanwhile.
    """
    before = source_code.read_code_state(root)
    target.mkdir(parents=True)
    checkout.copy_working_files(root, target, ())
    (target / ".dvc").mkdir(exist_ok=True)
    if (root / CONFIG).is_file():
        shutil.copy(root / CONFIG, target / CONFIG)
    _write_isolated_dvc_config(target)
    if source_code.read_code_state(root) != before:
        raise PlanError("files of the repository changed while the sweep began; run it again")
    return before


def _write_isolated_dvc_config(snapshot: Path) -> None:
    """Have DVC take the snapshot for a repository without git, with a cache of its own that nothing is written to."""
    (snapshot / f"{CONFIG}.local").write_text("[core]\n    no_scm = true\n[cache]\n    dir = cache\n")


@contextmanager
def swap_snapshot_params(snapshot: Path, text: str) -> Iterator[None]:
    """Give the snapshot a point's params.yaml for a while."""
    file = snapshot / PARAMS
    before = file.read_bytes()
    file.write_text(text)
    try:
        yield
    finally:
        file.write_bytes(before)


def copy_snapshot(snapshot: Path, target: Path) -> None:
    """Lay the snapshot out in the new folder `target`.

    The files are the same ones, not copies, where the disk can do that.
    """

    def linked(source: str, destination: str) -> None:
        try:
            os.link(source, destination, follow_symlinks=False)
        except OSError:
            shutil.copy2(source, destination, follow_symlinks=False)

    shutil.copytree(snapshot, target, symlinks=True, copy_function=linked, ignore=shutil.ignore_patterns(".dvc"))
