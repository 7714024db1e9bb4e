"""A running stage's modules against data/code/STAGE.json, by which DVC knows the stage's code.

So a stage whose code was edited after `code` ran, or a worker at another commit, ends with one line in place of a
result that is recorded as another code's. What a stage has imported may be edited while it runs: that changes nothing,
and it is out of date afterwards. A child that a stage starts with `python -m` is compared before it starts.
"""

import hashlib
import json
import sys
from collections.abc import Sequence
from functools import cached_property, partial
from importlib.abc import MetaPathFinder
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.code.without_influence import WITHOUT_INFLUENCE
from tasks.common.errors import StageError

if TYPE_CHECKING:
    from tasks.code import stages

PACKAGE = "tasks"


def check_and_watch_imports(stage: str, root: Path) -> None:
    """Compare what is imported now, and from now on what is imported later; StageError where a module differs.

    A stage that was started by hand, in a folder without data/code, is not compared: nothing is recorded of it.
    """
    file = root / f"data/code/{stage}.json"
    if not file.is_file():
        return
    recorded = _Recorded(root, file)
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] == PACKAGE and (path := getattr(module, "__file__", None)):
            recorded.compare(name, Path(path))
    main = sys.modules["__main__"]
    if main.__spec__ is not None and main.__file__:
        recorded.compare(main.__spec__.name, Path(main.__file__))
    sys.meta_path.insert(0, _Later(recorded))
    sys.addaudithook(partial(_check_child_process, recorded))


def _check_child_process(recorded: "_Recorded", event: str, arguments: tuple[Any, ...]) -> None:
    """Of each process that is started: StageError where it is one of `python -m tasks.NAME` with other modules than are
    recorded.
    """
    if event == "subprocess.Popen" and isinstance(arguments[1], list | tuple):
        for flag, name in pairwise(map(str, arguments[1])):
            if flag == "-m" and name.partition(".")[0] == PACKAGE:
                recorded.check_child_modules(name)


class _Recorded:
    """The code that a stage is recorded with."""

    def __init__(self, root: Path, file: Path) -> None:
        self.root = root.absolute()
        self.file = file
        self._children: dict[str, dict[str, str]] = {}  # module of a child -> its modules, and the file of each
        content = file.read_bytes()
        try:
            self.hashes: dict[str, str] = dict(json.loads(content))
            self._sources = self._load_source_hashes(content)
        except (ValueError, TypeError, LookupError, AttributeError):
            raise StageError(f"{file}: expected what `python -m tasks.code` writes") from None

    def _load_source_hashes(self, content: bytes) -> dict[str, str]:
        """MD5 of each file that the hashes were made from, where that is on record; else every file is compared by its
        syntax.
        """
        try:
            sources = json.loads((self.file.parent / "sources.json").read_bytes())
        except (OSError, ValueError):
            return {}
        made_here = sources["stages"].get(self.file.stem) == _compute_md5(content)
        return dict(sources["files"]) if made_here else {}

    @cached_property
    def _code(self) -> "stages.StageCode":
        from tasks.code import registries, stages

        return stages.StageCode(stages.read_working_files(self.root), registries.read_working_choices(self.root))

    @cached_property
    def _now(self) -> dict[str, str]:
        return self._code.hashes(self._code.modules()[self.file.stem])

    def compare(self, name: str, file: Path) -> None:
        """StageError unless this module is the one that is recorded."""
        if name in WITHOUT_INFLUENCE or not file.is_relative_to(self.root):
            return
        path = file.relative_to(self.root).as_posix()
        if path not in self.hashes:
            if file.read_bytes().strip():
                raise StageError(f"{path} is imported, and {self._shown} does not have it; run stage `code` again")
        elif self._sources.get(path) != _compute_md5(file.read_bytes()) and self._now.get(path) != self.hashes[path]:
            raise StageError(f"{path} is not the one that {self._shown} was made from: it changed since; run it again")

    def check_child_modules(self, module: str) -> None:
        """StageError unless all modules that one imports which is started as a program are those that are recorded."""
        if module not in self._children:
            try:
                self._children[module] = self._code.imported(module)
            except ValueError as error:
                raise StageError(str(error)) from None
        for name, path in self._children[module].items():
            self.compare(name, self.root / path)

    @property
    def _shown(self) -> str:
        return f"data/code/{self.file.name}"


class _Later(MetaPathFinder):
    """Finds no module; looks at each before others find it."""

    def __init__(self, recorded: _Recorded) -> None:
        self.recorded = recorded

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: Any = None) -> None:
        if fullname.partition(".")[0] != PACKAGE:
            return
        stem = self.recorded.root / fullname.replace(".", "/")
        for file in (stem.with_suffix(".py"), stem / "__init__.py"):
            if file.is_file():
                self.recorded.compare(fullname, file)


def _compute_md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
