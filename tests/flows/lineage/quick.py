"""What makes toy repositories quick.

Copies of those that have run, each built by one process; DVC's commands in this process; stages without supervisors;
databases opened without a check.
"""

import copy
import fcntl
import io
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from tests.flows.engine.toy import Toy
from tests.flows.quick_dvc import quick_dvc
from tests.flows.unsupervised import without_supervisors

T = TypeVar("T", bound=Toy)
Built = TypeVar("Built")
VERSION = lru_cache(metadata.version)


@contextmanager
def quick() -> Iterator[None]:
    """Stages find `python` and have no supervisors; DVC remembers no hashes, and the version of a package is looked up
    once.

    MLflow's commits do not wait for the disk.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        patch.setattr(metadata, "version", VERSION)
        quick_dvc(patch)
        without_supervisors(patch)

        def no_waiting(connection: Any, _: object) -> None:  # a listener of its own for each, since they may be nested
            connection.execute("PRAGMA synchronous = OFF")

        event.listen(Engine, "connect", no_waiting)
        try:
            yield
        finally:
            event.remove(Engine, "connect", no_waiting)


def copy_folder(folder: Path, to: Path) -> None:
    """A copy of a folder with all that is in it, by a command that takes less time than shutil."""
    subprocess.run(["cp", "-a", folder, to], check=True)


def built_once(folders: pytest.TempPathFactory, name: str, build: Callable[[Path], Built]) -> Built:
    """What `build` makes in a folder: by the first worker of pytest-xdist that needs it, while the others wait for
    it.
    """
    base = folders.getbasetemp()
    shared = base.parent if base.name == f"popen-{os.environ.get('PYTEST_XDIST_WORKER')}" else base
    folder, facts = shared / f"built_{name}", shared / f"built_{name}.pickle"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not facts.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            with quick():
                facts.write_bytes(pickle.dumps(build(folder)))
        result: Built = pickle.loads(facts.read_bytes())
    return result


def copied(toy: T, root: Path) -> T:
    """A copy of a repository elsewhere."""
    copy_folder(toy.root, root)
    twin = copy.deepcopy(toy)
    twin.root = root
    return twin


def as_killed(root: Path, target: Path) -> None:
    """Copy the repository while something works in it: what a kill of this process would leave now, with a lock of a
    dead process.
    """
    shutil.copytree(root, target, symlinks=True)
    dead = subprocess.Popen(["true"])
    dead.wait()
    lock = target / ".dvc/tmp/rwlock"
    if lock.is_file():
        lock.write_text(lock.read_text().replace(str(os.getpid()), str(dead.pid)))


def dvc(root: Path, *arguments: str) -> str:
    """Plain dvc as its command line has it, in this process, since its imports take longer than all that toys ask of
    it; its output.
    """
    from dvc.cli import main

    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as output:
        patch.chdir(root)
        assert main(list(arguments)) == 0, output.getvalue()
    return output.getvalue()
