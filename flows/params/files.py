"""YAML files of parameters: read as plain data of bounded size, and written whole or not at all."""

import os
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

PARAMS, SEED = "params.yaml", "seed"  # the one key that is no section: the seed of the sections that follow it
DEEPEST, LARGEST, MOST = 50, 10**300, 100_000  # bounds on nesting, on a number, and on the count of values


class ParameterError(Exception):
    """A parameter or its file is wrong; the text is the one line to show."""


def find_root() -> Path:
    """The repository: the closest folder at or above this one with a dvc.yaml; ParameterError if there is none."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "dvc.yaml").is_file():
            return folder
    raise ParameterError(f"dvc.yaml: not found in {here} or above; run posttrain inside the repository")


def read_text(path: Path) -> str:
    """The file as text; ParameterError if it cannot be read."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        raise ParameterError(f"{path.name}: not found in {path.parent}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path.name}: cannot be read as text ({error})") from None


def parse(text: str, name: str) -> Any:
    """The data; ParameterError, which names the file or option, if it is not YAML or is out of the bounds above."""
    try:
        data = YAML(typ="safe").load(text)  # YAML 1.2 as in DVC, so 1e-3 is a number
        size(data, {})
        return data
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark and not name.startswith("--set") else ""
        raise ParameterError(f"{name}: {where}not valid YAML ({' '.join(str(error.problem).split())})") from None
    except RecursionError:
        raise ParameterError(f"{name}: nested deeper than {DEEPEST} levels") from None
    except ParameterError as error:
        raise ParameterError(f"{name}: {error}") from None
    except (YAMLError, ValueError) as error:
        raise ParameterError(f"{name}: not valid YAML ({' '.join(str(error).split())})") from None


@lru_cache(maxsize=2)
def params(text: str) -> Any:
    """The data of a params.yaml with this text, parsed once; callers must not change it."""
    return parse(text, PARAMS)


def size(data: object, known: dict[int, int], above: tuple[int, ...] = ()) -> int:
    """The number of values when aliases are written out; ParameterError if a bound is passed.

    `known` has the sizes of collections already seen, so that nested aliases are counted without being walked through.
    """
    if isinstance(data, int) and abs(data) > LARGEST:
        raise ParameterError("a number of more than 300 digits")
    if not isinstance(data, dict | list):
        return 1
    if id(data) in above:
        raise ParameterError("a value that holds itself")
    if len(above) == DEEPEST:
        raise ParameterError(f"nested deeper than {DEEPEST} levels")
    if id(data) not in known:
        below = data.values() if isinstance(data, dict) else data
        known[id(data)] = 1 + sum(size(value, known, (*above, id(data))) for value in below)
        if known[id(data)] > MOST:
            raise ParameterError(f"more than {MOST} values")
    return known[id(data)]


def write(path: Path, content: bytes) -> None:
    """Replace a file atomically: a reader sees all of the old content or all of the new."""
    path = path.resolve()
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise ParameterError(f"{path.name}: cannot be written ({error.strerror})") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
