"""YAML files of parameters: read as plain data of bounded size, and written whole or not at all."""

import os
import re
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent

# the one key that is no section: the seed of the sections that follow it
PARAMS = "params.yaml"
SEED = "seed"
PRESETS = "presets"  # a folder of the repository, and of an extension
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # but for tabs and line breaks; DVC reads back U+0085 as a space
# bounds on nesting, on a number, and on the count of values
DEEPEST = 50
LARGEST = 10**300
MOST = 100_000


class ParameterError(Exception):
    """A parameter or its file is wrong; the text is the one line to show."""


def find_root() -> Path:
    """The repository: the closest folder at or above this one with a dvc.yaml; ParameterError if there is none."""
    cwd = Path.cwd()
    for folder in (cwd, *cwd.parents):
        if (folder / "dvc.yaml").is_file():
            return folder
    raise ParameterError(f"dvc.yaml: not found in {cwd} or above; run posttrain inside the repository")


def list_preset_files(root: Path) -> dict[str, Path]:
    """The presets by their names: presets/NAME.yaml, and those of extensions."""
    files = [*root.glob(f"{PRESETS}/*.yaml"), *root.glob(f"tasks/extensions/*/{PRESETS}/*.yaml")]
    return {file.stem: file for file in sorted(files)}


def read_text(path: Path) -> str:
    """The file as text; ParameterError if it cannot be read."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        raise ParameterError(f"{path.name}: not found in {path.parent}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path.name}: cannot be read as text ({error})") from None


def parse_yaml_text(text: str, name: str) -> Any:
    """The data; ParameterError, which names the file or option, if it is not YAML, is out of the bounds above, or is
    more than JSON has.
    """
    try:
        check_yaml_size(text)
        data = YAML(typ="safe").load(text)  # YAML 1.2 as in DVC, so 1e-3 is a number
        _check_json_compatible(data)
        return data
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark and not name.startswith("--set") else ""
        raise ParameterError(f"{name}: {where}not valid YAML ({' '.join(str(error.problem).split())})") from None
    except ParameterError as error:
        raise ParameterError(f"{name}: {error}") from None
    except Exception as error:  # ruamel raises KeyError, IndexError and others for text that does not fit its tag
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ParameterError(f"{name}: a value that YAML cannot read ({why[:80]}); in quotes it is text") from None


@lru_cache(maxsize=2)
def parse_params(text: str) -> Any:
    """The data of a params.yaml with this text, parsed once; callers must not change it."""
    return parse_yaml_text(text, PARAMS)


@dataclass
class _Extent:
    """How much a part of a YAML text holds where aliases are written out."""

    anchor: str | None = None
    values: int = 1
    levels: int = 0  # of collections in it

    def add(self, part: "_Extent") -> None:
        """Count a part of this one."""
        self.values += part.values
        self.levels = max(self.levels, part.levels + 1)


@lru_cache(maxsize=2)
def check_yaml_size(text: str, most: int = MOST) -> None:
    """ParameterError if a YAML text holds more than `most` values or too deeply nested ones, where aliases and merge
    keys are written out.

    It reads the parser's events: to build the values takes a call for each level, and a crash if there are too many.
    """
    extents: dict[str, _Extent] = {}  # by anchor
    above = [_Extent()]  # the document, and in it the collections that are open
    for event in YAML(typ="safe").parse(text):
        part = None
        if isinstance(event, CollectionStartEvent):
            above.append(_Extent(event.anchor))
        elif isinstance(event, CollectionEndEvent):
            part = above.pop()
        elif isinstance(event, ScalarEvent):
            part = _Extent(event.anchor)
        elif isinstance(event, AliasEvent):
            if any(event.anchor == extent.anchor for extent in above):
                raise ParameterError("a value that holds itself")
            part = extents.get(event.anchor)
        if part is not None:
            above[-1].add(part)
            if part.anchor:
                extents[part.anchor] = part
        if len(above) - 1 + above[-1].levels > DEEPEST:
            raise ParameterError(f"nested deeper than {DEEPEST} levels")
        if above[-1].values > most:
            raise ParameterError(f"more than {most} values")


def _check_json_compatible(data: object, prefix: str = "") -> None:
    """ParameterError unless the data consist of what JSON has too: DVC fails on a date, and passes over a key that is
    not text.
    """
    if isinstance(data, dict):
        for name, value in data.items():
            if not isinstance(name, str):
                raise ParameterError(f"{prefix}expected text as a key, got {str(name)[:80]}; in quotes it is text")
            _check_json_compatible(name, prefix)
            _check_json_compatible(value, f"{prefix.removesuffix(': ')}{'.' if prefix else ''}{name}: ")
    elif isinstance(data, list):
        for value in data:
            _check_json_compatible(value, prefix)
    elif isinstance(data, str):
        if CONTROL.search(data):
            raise ParameterError(f"{prefix}expected text without control characters, got {data[:80]!r}")
    elif isinstance(data, int) and abs(data) > LARGEST:
        raise ParameterError("a number of more than 300 digits")
    elif data is not None and not isinstance(data, int | float):
        got = f"a value of type {type(data).__name__}"
        raise ParameterError(f"{prefix}expected text, a number, true, false or null, got {got}; in quotes it is text")


def write_file_atomically(path: Path, content: bytes) -> None:
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
