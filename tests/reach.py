"""Which test files a change to a file can reach, by imports and by the names of files and modules in string literals.

`make check`, the part of the slow suite that CI picks, and benchmarks/mutation.py ask this. An edge counts 1, so that
the distance orders test files: those that import the changed file themselves come first. What conftest.py imports
counts more, since a test needs it only where it asks for such a fixture.
"""

import ast
import heapq
import os
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

HIDDEN = (".gitignore", ".gitattributes", ".dvcignore")
CONFTEST_COST = 4  # an edge out of conftest.py, in edges


def files_of(root: Path) -> list[str]:
    """The files of the repository, as paths below `root`: those that git tracks or would add.

    Without git: all but hidden ones (.ci and .dvc/config are files of it) and what runs make (mlruns, data but for
    data/raw).
    """
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return sorted(name for name in set(listed.stdout.splitlines()) if (root / name).is_file())
    found = []
    for folder, folders, files in os.walk(root):
        below = Path(folder).relative_to(root)
        folders[:] = [name for name in folders if _is_of_the_repository(below / name)]
        found += [str(below / name) for name in files if below.parts or not name.startswith(".") or name in HIDDEN]
    return sorted(found)


def _is_of_the_repository(folder: Path) -> bool:
    name = str(folder)
    if name in (".ci", ".dvc") or folder.parts[0] == "data":
        return name in (".ci", ".dvc", "data") or name.startswith("data/raw")
    return (
        not folder.name.startswith(".")
        and folder.name != "__pycache__"
        and name not in ("mlruns", "site")
        and folder.parts[0] != ".dvc"
    )


class Reach:
    """The graph of a repository's files: from each file, the files that import or name it."""

    def __init__(self, root: Path) -> None:
        self.files = files_of(root)
        self._users: dict[str, dict[str, int]] = defaultdict(dict)
        modules = {_module_name(file): file for file in self.files if file.endswith(".py")}
        known = self._known = set(self.files)
        for file in modules.values():
            for target in _references((root / file).read_text(), modules, known):
                if target != file:
                    self._users[target][file] = CONFTEST_COST if target.endswith("/conftest.py") else 1
        for conftest in (file for file in self.files if file.endswith("conftest.py")):
            for file in self.files:
                if is_test(file) and file.startswith(conftest.removesuffix("conftest.py")):
                    self._users[conftest][file] = CONFTEST_COST

    def tests_of(self, changed: Iterable[str]) -> dict[str, int]:
        """Each test file that is there and that one of the changed files reaches, with its distance, nearest first."""
        distances: dict[str, int] = {}
        queue = [(0, file) for file in changed]
        heapq.heapify(queue)
        while queue:
            distance, file = heapq.heappop(queue)
            if file in distances:
                continue
            distances[file] = distance
            for user, cost in self._users.get(file, {}).items():
                heapq.heappush(queue, (distance + cost, user))
        reached = [(distance, file) for file, distance in distances.items() if is_test(file) and file in self._known]
        return {file: distance for distance, file in sorted(reached)}


def is_test(file: str) -> bool:
    """Whether pytest collects the file."""
    inside = file.startswith(("tests/", "tasks/extensions/"))
    return inside and file.rpartition("/")[2].startswith("test_") and file.endswith(".py")


def _module_name(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _references(source: str, modules: dict[str, str], files: set[str]) -> set[str]:
    """The repository's files that a source imports, or names in a string: a path, or a module as in `python -m
    flows.cli`.
    """
    names: set[str] = set()
    paths: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
            if node.module not in modules or any(f"{node.module}.{alias.name}" not in modules for alias in node.names):
                names.add(node.module)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
            names.add(node.value)
            paths.add(node.value)
    return {modules[name] for name in names if name in modules} | (paths & files)
