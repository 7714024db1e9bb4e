"""The code of every stage: what is written to data/code/STAGE.json, the only dep of a stage that is code."""

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath

from tasks.code.modules import Module
from tasks.code.reachable_code import PackageCode, StageReach
from tasks.code.registries import Choices, list_chosen_modules
from tasks.code.syntax import dump_file_syntax
from tasks.code.without_influence import LOOKED_AT, WITHOUT_INFLUENCE

PACKAGE = "tasks"
FOLDER = Path("data/code")
SOURCES = FOLDER / "sources.json"  # the bytes that all of it was made from; no stage depends on it
MODULE = re.compile(rf"{PACKAGE}/(?:extensions/)?\w+/(\w+)\.py")
PROGRAM = re.compile(rb"^from tasks\.stage import .*\bmain\b", re.MULTILINE)
Known = dict[tuple[str, bytes], Module]
Hashes = dict[str, str]  # path in the repository -> hash


class StageCode:
    """The code of the stages, where `files` has the content of all files below tasks/ by their paths.

    `chosen` is what params.yaml chooses. `cache` keeps modules by name and content, for who looks at several versions
    of the code.
    """

    def __init__(self, files: Mapping[str, bytes], chosen: Choices, cache: Known | None = None) -> None:
        self.files = files
        self.chosen = chosen
        self._code = PackageCode(files.get, PACKAGE, WITHOUT_INFLUENCE, LOOKED_AT, cache)

    def modules(self) -> dict[str, str]:
        """Stage -> its module: each of a flow's or an extension's folder that hands its `run` to `tasks.stage.main`."""
        stage_modules = {}
        for path, content in sorted(self.files.items()):
            named = MODULE.fullmatch(path)
            if named and PROGRAM.search(content):
                stage_modules[named[1]] = path.removesuffix(".py").replace("/", ".")
        return stage_modules

    def hashes(self, module: str) -> Hashes:
        """Path -> hash of what a stage reaches in each module that it imports, and of each file that these name beside
        them.

        The hash is "" where a module is imported and nothing of it is reached. ValueError where there is no such
        module, or one of them is no Python of this version.
        """
        reached = StageReach(self._code, module, list_chosen_modules(module.rpartition(".")[2], self.chosen))
        parts = {
            path: _compute_sha256(json.dumps(definitions, sort_keys=True).encode())
            for path, definitions in reached.digests().items()
        }
        hashes = {
            **dict.fromkeys({*reached.imported().values(), *self._paths_without_influence}, ""),
            **parts,
            **self._hash_named_files(reached.files()),
        }
        return dict(sorted(hashes.items()))

    def imported(self, module: str) -> dict[str, str]:
        """Name -> path of each module that a program imports, at once or when what it reaches runs; without those
        without influence.
        """
        return StageReach(self._code, module).imported()

    @cached_property
    def _paths_without_influence(self) -> set[str]:
        """What only modules without influence import, which every stage may import with them."""
        everything = PackageCode(self.files.get, PACKAGE)
        seen = set[str]()
        waiting = [name for name in WITHOUT_INFLUENCE if everything.module(name)]
        while waiting:
            name = waiting.pop()
            module = everything.module(name)
            if module is not None and name not in seen:
                seen.add(name)
                waiting += [
                    *module.imported,
                    *(imported_module for part in module.parts for imported_module in part.modules),
                ]
        return {everything.path(name) for name in seen - WITHOUT_INFLUENCE}

    def _hash_named_files(self, named: set[str]) -> Hashes:
        """The files that modules name, and those below the folders that they name; of Python the syntax."""
        return {
            (f"{path}, as text" if path.endswith(".py") else path): _compute_sha256(
                dump_file_syntax(content) if path.endswith(".py") else content
            )
            for path, content in self.files.items()
            if any(PurePosixPath(path).is_relative_to(named_path) for named_path in named)
        }


def encode_stage_hashes(hashes: Mapping[str, str]) -> bytes:
    """What the file of a stage holds."""
    return (json.dumps(hashes, indent=0) + "\n").encode()


def get_stage_code_path(stage: str) -> Path:
    """The file of a stage; branches share one."""
    return FOLDER / f"{stage.partition('@')[0]}.json"


def read_working_files(root: Path) -> dict[str, bytes]:
    """Path in the repository -> content of all files below tasks/ that Python did not write."""
    return {
        file.relative_to(root).as_posix(): file.read_bytes()
        for file in sorted((root / PACKAGE).rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".pyc"
    }


def build_code_files(files: Mapping[str, bytes], chosen: Choices, cache: Known | None = None) -> dict[Path, bytes]:
    """What the stage `code` writes: a file for each stage, and SOURCES with MD5 hashes of these and of all `files`."""
    code = StageCode(files, chosen, cache)
    made = {
        get_stage_code_path(stage): encode_stage_hashes(code.hashes(module)) for stage, module in code.modules().items()
    }
    sources = {
        "stages": {path.stem: compute_md5(content) for path, content in made.items()},
        "files": _compute_file_md5s(files),
    }
    return {**made, SOURCES: (json.dumps(sources, indent=0) + "\n").encode()}


def _compute_file_md5s(files: Mapping[str, bytes]) -> Hashes:
    return {path: compute_md5(content) for path, content in sorted(files.items())}


def compute_md5(content: bytes) -> str:
    """DVC's hash of a file."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def _compute_sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
