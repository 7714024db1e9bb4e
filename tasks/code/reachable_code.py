"""What of the code a stage can reach, and its digests: module -> definition -> hash.

A stage reaches what its module runs, what runs at the import of each module that is imported on the way, and each
definition that a reached part names. Where it cannot be seen which definition is meant, all of a module counts.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping
from pathlib import PurePosixPath

from tasks.code.modules import DOCSTRINGS, SOURCES, CodePart, Module, Reference, parse_module

RUNS = "import"  # in place of a definition's name: what runs at the import
Source = Callable[[str], bytes | None]  # a path in the repository -> its content; None where there is no such file
Digests = dict[str, dict[str, str]]  # path -> definition -> hash


class PackageCode:
    """All modules below one package, as `source` has them; `without_influence` are modules that count for nothing.

    `looked_at` are definitions, as `tasks.stage.main`, that read docstrings or sources and do nothing with them that an
    out shows. `cache` keeps modules by name and content, for who looks at several versions of the code.
    """

    def __init__(
        self,
        source: Source,
        package: str = "tasks",
        without_influence: Collection[str] = (),
        looked_at: Collection[str] = (),
        cache: dict[tuple[str, bytes], Module] | None = None,
    ) -> None:
        self.source = source
        self.package = package
        self._known = {} if cache is None else cache
        self.without_influence = frozenset(without_influence)
        self.looked_at = frozenset(looked_at)
        self._modules: dict[str, Module | None] = {}
        self._paths: dict[str, str] = {}

    def module(self, name: str) -> Module | None:
        """The module of this name; None where it is no module of the package, or counts for nothing."""
        if name not in self._modules:
            self._modules[name] = self._read_module(name)
        return self._modules[name]

    def path(self, name: str) -> str:
        """The file of a module."""
        return self._paths[name]

    def _read_module(self, name: str) -> Module | None:
        if name.partition(".")[0] != self.package or name in self.without_influence:
            return None
        stem = name.replace(".", "/")
        for path, package in ((f"{stem}.py", False), (f"{stem}/__init__.py", True)):
            if (content := self.source(path)) is not None:
                self._paths[name] = path
                return self._parse_cached_module(name, path, content, package)
        return None

    def _parse_cached_module(self, name: str, path: str, content: bytes, package: bool) -> Module:
        if (name, content) not in self._known:
            try:
                self._known[name, content] = parse_module(content, name, package=package)
            except SyntaxError as error:
                raise ValueError(f"{path}: {error.msg} (line {error.lineno})") from None
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from None
        return self._known[name, content]

    def longest(self, names: Reference) -> tuple[str, Reference]:
        """The module that a dotted name begins with, and the rest of it; an empty name where it begins with none."""
        parts = ".".join(names).split(".")
        for end in range(len(parts), 0, -1):
            if self.module(name := ".".join(parts[:end])) is not None:
                return name, (*parts[end:],)
        return "", ()


class StageReach:
    """What the module of a stage reaches."""

    def __init__(self, code: PackageCode, stage: str, chosen: Mapping[str, Collection[str]] | None = None) -> None:
        """`chosen` has the modules that a definition looks up: who reaches it reaches in each what has the module's
        name.
        """
        self.code = code
        self.chosen = chosen or {}
        self.parts: dict[int, tuple[str, CodePart]] = {}  # by identity, with the module
        self.whole: set[str] = set()
        self.bound: dict[tuple[str, str], str] = {}  # module, a name that it imports -> what that is
        self._imported: set[str] = set()
        self._followed: set[tuple[str, Reference]] = set()
        self._waiting: list[tuple[str, CodePart]] = []
        self._add_imported_module(stage)
        if code.module(stage) is None:
            raise ValueError(f"{stage}: no module of {code.package}")
        for part in self._list_program_parts(stage):
            self._add_part(stage, part)
        while self._waiting:
            name, part = self._waiting.pop()
            for imported in part.modules:
                self._add_imported_module(imported)
            for module in self.chosen.get(f"{name}.{_join_part_names(part)}", ()):
                self._follow_dotted_name((module, module.rpartition(".")[2]))
            if ("__name__",) in part.references:  # it may start its own module as a program
                for program_part in self._list_program_parts(name):
                    self._add_part(name, program_part)
            for reference in part.references:
                self._follow_reference(name, reference)
            for reference in part.texts:
                self._follow_text_reference(name, reference)

    def digests(self) -> Digests:
        """The hash of each reached part, and of each file that one names beside its module, in the order of their
        names.

        Docstrings count if anything that is reached reads some; all bytes of each module if anything reads sources.
        """
        parts = [(name, _join_part_names(part), part) for name, part in self.parts.values()]
        counted = [part for name, definition, part in parts if f"{name}.{definition}" not in self.code.looked_at]
        reads = {name for part in counted for name in part.reads}
        mentioned = {name for _, _, part in parts for name in part.mentioned}
        hashes: dict[str, dict[str, list[str]]] = {}
        for name, definition, part in sorted(parts, key=lambda triple: triple[2].node.lineno):
            digest = part.digest(
                docstrings=bool(reads & DOCSTRINGS),
                annotations=name in self.whole or bool(part.functions & mentioned),
            )
            hashes.setdefault(self.code.path(name), {}).setdefault(definition, []).append(digest)
        for (name, imported), what in self.bound.items():
            hashes.setdefault(self.code.path(name), {}).setdefault(imported, []).append(_compute_sha256(what))
        digests = {
            path: {name: _combine_digests(parts) for name, parts in sorted(definitions.items())}
            for path, definitions in hashes.items()
        }
        if reads & SOURCES:
            for path in digests:
                digests[path]["source"] = _compute_sha256(self.code.source(path) or b"")
        return dict(sorted(digests.items()))

    def files(self) -> set[str]:
        """Paths of the files and folders that reached parts name beside their modules."""
        return {
            PurePosixPath(self.code.path(name)).parent.joinpath(file).as_posix()
            for name, part in self.parts.values()
            for file in part.files
        }

    def imported(self) -> dict[str, str]:
        """Name -> path of each module that is imported."""
        return {name: self.code.path(name) for name in self._imported}

    def _add_imported_module(self, name: str) -> None:
        """Import a module and the packages around it, with all that they import in turn."""
        waiting = [name]
        while waiting:
            parts = waiting.pop().split(".")
            for end in range(1, len(parts) + 1):
                name = ".".join(parts[:end])
                module = self.code.module(name)
                if module is None or name in self._imported:
                    continue
                self._imported.add(name)
                for part in module.running:
                    self._add_part(name, part)
                waiting += module.imported
                outside = [
                    imported_name
                    for imported_name in module.unnamed_imports
                    if imported_name.partition(".")[0] != self.code.package
                ]
                if outside:
                    self.bound[name, RUNS] = ", ".join(outside)
                for target in module.imports.get("*", ()):
                    self._follow_dotted_name(target)

    def _list_program_parts(self, name: str) -> list[CodePart]:
        module = self.code.module(name)
        return module.program if module else []

    def _add_part(self, module: str, part: CodePart) -> None:
        if id(part) not in self.parts:
            self.parts[id(part)] = module, part
            self._waiting.append((module, part))

    def _follow_reference(self, module: str, reference: Reference) -> None:
        """Reach what a name means in a module, with the attributes that are asked of it."""
        parsed = self.code.module(module)
        first = reference[0]
        if parsed is None or (module, reference) in self._followed:
            return
        self._followed.add((module, reference))
        if first == "globals":
            self._follow_dotted_name((module,))
        for part in parsed.definitions.get(first, ()):
            self._add_part(module, part)
        if first in parsed.imports:
            self.bound[module, first] = ", ".join(sorted(".".join(target) for target in parsed.imports[first]))
        for target in parsed.imports.get(first, ()):
            self._follow_dotted_name((*target, *reference[1:]))

    def _follow_text_reference(self, module: str, text: Reference) -> None:
        """Reach what a text names: a definition, or a module by its whole name; the short name of a module is a word
        like any other.
        """
        parsed = self.code.module(module)
        targets = parsed.imports.get(text[0], ()) if parsed else ()
        if parsed and parsed.program and ".".join(text) == module:  # it starts itself as a program
            for program_part in parsed.program:
                self._add_part(module, program_part)
        elif text[0] == self.code.package:
            self._follow_dotted_name(text)
        elif not any(self.code.longest((*target, *text[1:]))[1] == () for target in targets):
            self._follow_reference(module, text)

    def _follow_dotted_name(self, names: Reference) -> None:
        name, rest = self.code.longest(names)
        module = self.code.module(name) if name != self.code.package else None
        if module is None:
            return
        self._add_imported_module(name)
        if rest and (rest[0] in module.definitions or rest[0] in module.imports):
            self._follow_reference(name, rest)
        elif rest and rest[0] in module.bound:
            return  # what it is made of runs at the import
        elif name not in self.whole:
            self.whole.add(name)
            for imported_name in module.imports:
                self._follow_reference(name, (imported_name,))
            for part in (*module.parts, *module.program):  # it may be started as a program
                self._add_part(name, part)


def _join_part_names(part: CodePart) -> str:
    """The names that a part defines, which do not depend on by which of them it was reached."""
    return ", ".join(part.names) or RUNS


def _combine_digests(digests: list[str]) -> str:
    return digests[0] if len(digests) == 1 else _compute_sha256("".join(digests))


def _compute_sha256(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()
