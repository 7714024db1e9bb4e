"""A module's tree without what has no effect: docstrings that nothing reads, annotations of functions that nothing reads.

Comments, layout and line numbers are not in a tree. Annotations in class bodies and of modules stay, and all of a class or function
that something else makes or decorates: pydantic, pandera, typer and their like read those.
"""

import ast
import builtins
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from flows.engine.edits.annotations import Annotation
from flows.engine.edits.facts import docstring, dotted

Function = ast.FunctionDef | ast.AsyncFunctionDef
BUILT_IN = frozenset(("property", "staticmethod", "classmethod"))
IMPORTED = {
    "contextmanager": "contextlib",
    "cached_property": "functools",
    "lru_cache": "functools",
    "cache": "functools",
    "overload": "typing",
    "override": "typing",
    "abstractmethod": "abc",
    "once_differentiable": "torch.autograd.function",
}
DOTTED = {"torch.no_grad": "torch", "functools.lru_cache": "functools", "functools.cache": "functools"}
MADE = ("__init__", "__new__", "__call__")  # whose signature is that of their class


@dataclass(frozen=True)
class Rules:
    """What may be left out, by what all of a stage's code reads."""

    docs: bool  # whether docstrings may go
    annotations: bool
    described: frozenset[str] = frozenset()  # functions whose docstrings somebody else may read
    inspected: frozenset[str] = frozenset()  # functions whose annotations somebody else may read
    plain: frozenset[str] = frozenset()  # classes that nothing else makes


@dataclass(frozen=True)
class Stripped:
    """The tree as text, and the annotations that were left out of it."""

    text: str
    annotations: tuple[Annotation, ...]


@lru_cache(maxsize=512)
def strip(source: bytes, rules: Rules) -> Stripped:
    """The module without what the rules leave out; SyntaxError, ValueError or RecursionError where it cannot be had."""
    tree = ast.parse(source)
    stripper = _Stripper(rules, tree)
    return Stripped(ast.dump(stripper.visit(tree)), tuple(stripper.found))


class _Stripper(ast.NodeTransformer):
    def __init__(self, rules: Rules, tree: ast.Module) -> None:
        self.rules, self.found = rules, list[Annotation]()
        self._origins, self._bound = _bindings(tree)
        self._late = self._origins.get("annotations") == "__future__"
        self._classes, self._in_function = list[str](), False

    def visit_Module(self, node: ast.Module) -> ast.AST:
        self._drop_docstring(node)
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if node.name not in self.rules.plain:
            return node
        self._drop_docstring(node)
        above, self._in_function = self._in_function, False
        self._classes.append(node.name)
        self.generic_visit(node)
        self._classes.pop()
        self._in_function = above
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Within a function an annotation is neither kept nor evaluated; without a value it makes the name local all the same."""
        self.generic_visit(node)
        if not self._in_function or not self.rules.annotations:
            return node
        self.found.append(Annotation(node.annotation, evaluated=False))
        if node.value is None:
            node.annotation = ast.Constant(None)
            return node
        return ast.Assign([node.target], node.value, lineno=0)

    def _function(self, node: Function) -> ast.AST:
        if not all(self._leaves_alone(one) for one in node.decorator_list):
            return node
        names = {node.name, *(self._classes[-1:] if node.name in MADE else ())}
        if not names & self.rules.described:
            self._drop_docstring(node)
        if self.rules.annotations and not names & self.rules.inspected:
            arguments = node.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            for one in filter(None, every):
                self._take(one.annotation)
                one.annotation = None
            self._take(node.returns)
            node.returns = None
        above, self._in_function = self._in_function, True
        classes, self._classes = self._classes, []
        self.generic_visit(node)
        self._in_function, self._classes = above, classes
        return node

    def _take(self, annotation: ast.expr | None) -> None:
        if annotation is not None:
            self.found.append(Annotation(annotation, evaluated=not self._late))

    def _drop_docstring(self, node: ast.Module | ast.ClassDef | Function) -> None:
        if self.rules.docs and docstring(node) is not None:
            del node.body[0]
            if not node.body:
                node.body.append(ast.Pass())

    def _leaves_alone(self, decorator: ast.expr) -> bool:
        """Whether it is one that looks at neither docstring nor annotations, under its own name."""
        if isinstance(decorator, ast.Attribute) and decorator.attr in ("setter", "getter", "deleter"):
            return isinstance(decorator.value, ast.Name)
        name = dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if name in BUILT_IN:
            return name not in self._bound
        if name in DOTTED:
            return self._origins.get(name.partition(".")[0]) == DOTTED[name]
        return name in IMPORTED and self._origins.get(name) == IMPORTED[name]


def _bindings(tree: ast.Module) -> tuple[dict[str, str], Collection[str]]:
    """The module that each imported name comes from, as long as nothing else binds the name; and all names that are bound."""
    origins, others = dict[str, str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                _note(origins, others, alias.asname or alias.name, node.module or "", alias.asname is None)
                if alias.name == "*":
                    others.update((*dir(builtins), *IMPORTED, *DOTTED))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                _note(origins, others, name, name, alias.asname is None)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            others.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            others.add(node.name)
        elif isinstance(node, ast.arg):
            others.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            others.add(node.name)
    return {name: origin for name, origin in origins.items() if name not in others}, others | origins.keys()


def _note(origins: dict[str, str], others: set[str], name: str, origin: str, plain: bool) -> None:
    if not plain or origins.get(name, origin) != origin:
        others.add(name)
    origins[name] = origin
