"""Whether an edit of a module can have any effect on what a stage writes, by all of the code that the stage has.

The answer is yes unless it is plainly no. Equal trees have the same effect as long as no code of the stage reads its own text; trees
that are equal without docstrings and annotations, as long as none reads these.
"""

import ast
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from flows.engine.edits import facts
from flows.engine.edits.annotations import harmless
from flows.engine.edits.classes import plain_classes
from flows.engine.edits.facts import Facts
from flows.engine.edits.stripping import Rules, strip

NOTHING = Rules(docs=False, annotations=False)
# Functions that look at no docstring of what they are given.
CALLED_ONLY = {("functools", "partial"), ("typing", "get_type_hints"), ("", "signature")}


@dataclass(frozen=True)
class Code:
    """All modules of a stage as they are now, by their paths. ValueError or SyntaxError where one is no Python."""

    modules: Mapping[str, bytes]

    def effectless(self, path: str, old: bytes) -> str | None:
        """In what alone the module differs from an earlier version, in words; None where the edit may have an effect."""
        new = self.modules[path]
        try:
            if any(one.source for one in self._facts.values()) or not _compiles(new):
                return None
            if strip(old, NOTHING).text == strip(new, NOTHING).text:
                return "comments or layout"
            return self._without_words(old, new)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None

    def reads_source(self) -> str:
        """Which module reads its own text, and by what name; "" where none does."""
        return next((f"{path} ({one.source})" for path, one in self._facts.items() if one.source), "")

    @property
    def docstrings_go(self) -> bool:
        """Whether no code reads docstrings."""
        return self._rules.docs

    @property
    def annotations_go(self) -> bool:
        """Whether no code reads annotations, but those of functions that it is given by their names."""
        return self._rules.annotations

    def _without_words(self, old: bytes, new: bytes) -> str | None:
        rules = self._rules
        for words, allowed in (
            ("docstrings", Rules(rules.docs, False, rules.described, rules.inspected, rules.plain)),
            ("type annotations", Rules(False, rules.annotations, rules.described, rules.inspected, rules.plain)),
            ("docstrings and type annotations", rules),
        ):
            before, after = strip(old, allowed), strip(new, allowed)
            if before.text == after.text and harmless(before.annotations, after.annotations):
                return words
        return None

    @cached_property
    def _facts(self) -> Mapping[str, Facts]:
        return {path: facts.of(source) for path, source in self.modules.items()}

    @cached_property
    def _rules(self) -> Rules:
        """What may be left out of every module."""
        known = self._facts.values()
        used = frozenset(name for one in known for name in one.used)
        passed = {((origin, name), given) for origin, name, given in self._everywhere("passed")}
        sinks = {*self._everywhere("sinks"), *CALLED_ONLY}
        readers, unclear = self._everywhere("readers"), self._everywhere("unclear")
        met = {name for _, name in readers} & used or any(
            reader in unclear or ("", reader[1]) in unclear for reader in readers
        )
        return Rules(
            not any(one.docs for one in known),
            not any(one.annotations for one in known) and readers <= sinks and not met,
            described=used | {name for callee, name in passed if callee not in sinks},
            inspected=used | {name for _, name in passed},
            plain=plain_classes([*known]),
        )

    def _everywhere(self, kind: str) -> set[tuple[str, ...]]:
        """Of every module the functions of a kind, each with the module that has it."""
        found = set[tuple[str, ...]]()
        for path, one in self._facts.items():
            module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            for item in getattr(one, kind):
                origin, *rest = (".", item) if isinstance(item, str) else item
                found.add((module if origin == "." else origin, *rest))
        return found


def same_but_for_words(old: bytes, new: bytes) -> bool:
    """Whether two versions differ in no more than comments, docstrings and annotations of functions, whoever may read those."""
    try:
        trees = [ast.parse(old), ast.parse(new)]
        classes = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
        rules = Rules(docs=True, annotations=True, plain=frozenset(classes))
        return strip(old, rules).text == strip(new, rules).text
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


@lru_cache(maxsize=512)
def _compiles(source: bytes) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile(source, "edit", "exec", dont_inherit=True)
    return True
