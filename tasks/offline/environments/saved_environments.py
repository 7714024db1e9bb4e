"""Environments that a folder holds, named `module:folder`: the module's `make(folder)` builds one of what
environment.json there says.

What is recorded in such an environment gets a copy of the file. So a data set's folder is all that is needed to play in
it, and a change of the environment changes the data set.
"""

from pathlib import Path
from shutil import copyfile
from typing import Any

import gymnasium

from tasks.common.errors import DataError
from tasks.offline.configs.wrappers import BETWEEN, BRACE
from tasks.offline.environments import modules

FILE = "environment.json"


def find_environment_folder(environment: str) -> Path | None:
    """The folder that holds the environment; None for one that is not named by a folder."""
    _, _, name = environment.partition(BETWEEN)[0].partition(BRACE)[0].partition(":")
    return Path(name) if name and (Path(name) / FILE).is_file() else None


def make_saved_environment(environment: str, folder: Path) -> gymnasium.Env[Any, Any]:
    """The environment that `folder` holds, without wrappers; DataError with one line if it cannot be made."""
    module = modules.import_environment_module(environment, environment.partition(":")[0])
    try:
        env: gymnasium.Env[Any, Any] = module.make(folder)
    except Exception as error:  # whatever runs in it
        what = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise DataError(f"environment {environment}: cannot be made: {what}") from None
    return env


def copy_environment_file(environment: str, folder: Path) -> None:
    """Put what the environment is made of into another folder; nothing for one that is not named by a folder."""
    if (source := find_environment_folder(environment)) is not None and source.resolve() != folder.resolve():
        folder.mkdir(parents=True, exist_ok=True)
        copyfile(source / FILE, folder / FILE)


def point_environment_id_to_folder(environment: str, folder: Path) -> str:
    """The environment's name with this folder in the place of its own, where this one holds it."""
    if not (folder / FILE).is_file():
        return environment
    name, between, wrappers = environment.partition(BETWEEN)
    return f"{name.partition(':')[0]}:{folder}{between}{wrappers}"


def is_from_other_environment(folder: Path, environment: str) -> bool:
    """Whether what stands in the folder was recorded in an environment that this one is not."""
    environment_folder = find_environment_folder(environment)
    recorded = folder / FILE
    return recorded.is_file() and (
        environment_folder is None or (environment_folder / FILE).read_bytes() != recorded.read_bytes()
    )
