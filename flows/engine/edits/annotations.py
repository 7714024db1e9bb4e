"""Whether an annotation can be put in place of another, or of none, without any effect where it is evaluated.

An annotation of a function is evaluated when the module is imported, so one with a call in it does something, and one with a name
that does not exist ends the import. Allowed are names that the recorded version has in annotations too, and Python's own types.
"""

import ast
import collections.abc
from collections.abc import Collection
from dataclasses import dataclass

from flows.engine.edits.facts import dotted

BUILT_IN = frozenset(
    ["int", "float", "str", "bool", "bytes", "complex", "object", "list", "dict", "set", "frozenset", "tuple", "type"]
)
GENERIC = frozenset(["list", "dict", "set", "frozenset", "tuple", "type"])
ABSTRACT = frozenset(collections.abc.__all__) - {"Callable", "ByteString", "Buffer", "Sized", "Hashable"}


@dataclass(frozen=True)
class Annotation:
    """One annotation as it is written, and whether Python evaluates it."""

    node: ast.expr
    evaluated: bool

    @property
    def text(self) -> str:
        """The annotation in one form."""
        return ast.dump(self.node)


def harmless(old: Collection[Annotation], new: Collection[Annotation]) -> bool:
    """Whether the annotations `old` of a module may become `new`, or come to be."""
    before, after = {one.text for one in old}, {one.text for one in new}
    known = {part for one in old if one.evaluated for part in _names(one.node)}
    gone = [one for one in old if one.text not in after]
    added = [one for one in new if one.text not in before]
    return all(_pure(one.node) for one in (*gone, *added)) and all(
        not one.evaluated or _fits(one.node, known) for one in added
    )


def _names(node: ast.expr) -> set[str]:
    """The dotted names in an annotation, and whole expressions with brackets."""
    names = {name for inner in ast.walk(node) if isinstance(inner, ast.expr) and (name := dotted(inner))}
    return names | {ast.dump(inner) for inner in ast.walk(node) if isinstance(inner, ast.Subscript)}


def _pure(node: ast.AST) -> bool:
    """Whether nothing but names, brackets, constants and `|` is there."""
    allowed = (
        ast.Name,
        ast.Attribute,
        ast.Subscript,
        ast.Constant,
        ast.Tuple,
        ast.List,
        ast.BinOp,
        ast.BitOr,
        ast.expr_context,
    )
    return all(isinstance(inner, allowed) for inner in ast.walk(node))


def _fits(node: ast.expr, known: Collection[str]) -> bool:
    """Whether evaluating it cannot fail, given that these names have been evaluated before."""
    if isinstance(node, ast.Constant):
        return node.value is None or isinstance(node.value, str)
    return _is_type(node, known)


def _is_type(node: ast.expr, known: Collection[str]) -> bool:
    if isinstance(node, ast.Constant):
        return node.value is None
    if isinstance(node, ast.BinOp):
        nothing = all(isinstance(side, ast.Constant) for side in (node.left, node.right))
        return not nothing and _is_type(node.left, known) and _is_type(node.right, known)
    if isinstance(node, ast.Subscript):
        if ast.dump(node) in known:
            return True
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        name = dotted(node.value)
        generic = name in GENERIC or (name in ABSTRACT and name in known)
        return generic and all(_is_type(one, known) or _is_ellipsis(one) for one in inner)
    name = dotted(node)
    return bool(name) and (name in known or name in BUILT_IN)


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...
