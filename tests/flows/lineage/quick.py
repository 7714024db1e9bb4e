"""What makes toy repositories quick: copies of those that have run, DVC's commands in this process, databases opened without a check."""

import copy
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import pytest
from mlflow.store.db import utils
from sqlalchemy import event
from sqlalchemy.engine import Engine

from tests.flows.engine.toy import Toy

T = TypeVar("T", bound=Toy)
NEWEST_SCHEMA = lru_cache(utils._get_latest_schema_revision)


@contextmanager
def quick() -> Iterator[None]:
    """Stages find `python`; MLflow looks up its newest schema once, and its commits do not wait for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        patch.setattr(utils, "_get_latest_schema_revision", NEWEST_SCHEMA)

        def no_waiting(connection: Any, _: object) -> None:  # a listener of its own for each, since they may be nested
            connection.execute("PRAGMA synchronous = OFF")

        event.listen(Engine, "connect", no_waiting)
        try:
            yield
        finally:
            event.remove(Engine, "connect", no_waiting)


def copied(toy: T, root: Path) -> T:
    """A copy of a repository elsewhere."""
    shutil.copytree(toy.root, root, symlinks=True)
    twin = copy.deepcopy(toy)
    twin.root = root
    return twin


def as_killed(root: Path, target: Path) -> None:
    """Copy the repository while something works in it: what a kill of this process would leave now, with a lock of a dead process."""
    shutil.copytree(root, target, symlinks=True)
    dead = subprocess.Popen(["true"])
    dead.wait()
    lock = target / ".dvc/tmp/rwlock"
    if lock.is_file():
        lock.write_text(lock.read_text().replace(str(os.getpid()), str(dead.pid)))


def dvc(root: Path, *arguments: str) -> str:
    """Plain dvc as its command line has it, in this process, since its imports take longer than all that toys ask of it; its output."""
    from dvc.cli import main

    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as output:
        patch.chdir(root)
        assert main(list(arguments)) == 0, output.getvalue()
    return output.getvalue()
