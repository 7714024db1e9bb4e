"""What a module's code can see of its own text: whether it reads sources or line numbers, docstrings or annotations, and which names it passes on.

Everything here errs to one side. What looks as if it might read them counts as reading them, by the name alone.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from flows.engine.edits import known, names

Callee = tuple[str, str]  # a function: where its name comes from ("." is the module itself, "" unknown), and its name
Passed = tuple[str, str, str]  # the same, and a name that it is given by position


@dataclass(frozen=True)
class Facts:
    """What one module does."""

    source: str  # the first name that reads sources or lines; "" where there is none
    docs: str  # the same of docstrings
    annotations: str  # the same of annotations
    used: frozenset[str]  # names that are used otherwise than by being called, so that somebody else may look at them
    passed: frozenset[Passed]  # names that are given to functions by position, as `main(run)`
    classes: Mapping[
        str, tuple[tuple[str, ...], bool]
    ]  # class -> its bases, and whether something else makes or decorates it
    sinks: frozenset[str]  # functions that only call what they are given first, and read its signature
    readers: frozenset[str]  # sinks that read its annotations
    unclear: frozenset[Callee]  # functions that are given something else first than a function of a module, by its name


@lru_cache(maxsize=4096)
def of(source: bytes) -> Facts:
    """The facts of a module; SyntaxError or ValueError where it is none."""
    tree = ast.parse(source)
    found = _Finder(tree)
    found.visit(tree)
    return Facts(
        found.source,
        found.docs,
        found.annotations,
        frozenset(found.used),
        frozenset(found.passed),
        found.classes,
        frozenset(found.sinks - found.others),
        frozenset(found.readers),
        frozenset(found.unclear),
    )


def dotted(node: ast.expr) -> str:
    """`a.b.c` of a name with attributes; "" of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (above := dotted(node.value)):
        return f"{above}.{node.attr}"
    return ""


def docstring(node: ast.AST) -> ast.Expr | None:
    """The statement that is the docstring of a module, class or function."""
    body = getattr(node, "body", None)
    first = body[0] if isinstance(body, list) and body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return first
    return None


class _Finder(ast.NodeVisitor):
    """Walks a module once. Docstrings are text and no code, so that what they say counts for nothing."""

    def __init__(self, tree: ast.Module) -> None:
        self.source = self.docs = self.annotations = ""
        self.used, self.passed = set[str](), set[Passed]()
        self.sinks, self.others, self.readers, self.unclear = set[str](), set[str](), set[str](), set[Callee]()
        self._functions = list[ast.FunctionDef]()  # around the node that is visited
        set_too = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        defined = (one for node in tree.body for one in _defines(node))
        self._defined = {name: origin for name, origin in defined if name not in set_too}  # name -> where it comes from
        self.classes: dict[str, tuple[tuple[str, ...], bool]] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        before = self.source, self.docs, self.annotations
        (self.sinks if _is_sink(node) else self.others).add(node.name)
        self._functions.append(node)
        self.generic_visit(node)
        self._functions.pop()
        if known.is_harmless(node):
            self.source, self.docs, self.annotations = before

    def visit_Assign(self, node: ast.Assign) -> None:
        before = self.source
        self.generic_visit(node)
        if known.is_harmless(node):
            self.source = before

    def visit_List(self, node: ast.List) -> None:
        """`[sys.executable, module.__file__]` starts a program."""
        program = bool(node.elts) and dotted(node.elts[0]) == "sys.executable"
        for one in node.elts:
            if not (program and dotted(one).endswith(".__file__")):
                self.visit(one)

    def generic_visit(self, node: ast.AST) -> None:
        doc = docstring(node)
        for child in ast.iter_child_nodes(node):
            if child is not doc:
                self.visit(child)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.used.add(node.id)
        self._name(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load):
            self.used.add(node.attr)
        self._attribute(node)

    def _attribute(self, node: ast.Attribute) -> None:
        name = dotted(node)
        self._name(node.attr)
        self._module(name)
        if name.partition(".")[0] == "inspect" and isinstance(node.value, ast.Name):
            if node.attr not in names.HARMLESS_OF_INSPECT:
                self._found("source", name)
        elif not isinstance(node.value, ast.Name):
            self.visit(node.value)
        elif isinstance(node.value.ctx, ast.Load):
            self.used.add(node.value.id)
            self._name(node.value.id)

    def visit_Call(self, node: ast.Call) -> None:
        function = dotted(node.func)
        last = function.rpartition(".")[2]
        callee = (self._defined.get(last, "") if isinstance(node.func, ast.Name) else "", last)
        if not node.args or not (isinstance(node.args[0], ast.Name) and node.args[0].id in self._defined):
            self.unclear.add(callee)
        if function in names.HINTS and self._is_of_own_parameter(node):
            self.readers.add(self._functions[-1].name)
        elif function in names.HINTS or last == "signature":
            self._found("annotations", function)
        if last in names.IMPORTERS:
            for one in node.args:
                if isinstance(one, ast.Constant):
                    self._module(str(one.value))
                    self._name(str(one.value))
        if isinstance(node.func, ast.Name):
            self._name(node.func.id)
        elif isinstance(node.func, ast.Attribute):
            self._attribute(node.func)
        else:
            self.visit(node.func)
        for given in node.args:
            if isinstance(given, ast.Name) and isinstance(node.func, ast.Name):
                self.passed.add((*callee, given.id))
                self._name(given.id)
            else:
                self.visit(given)
        for keyword in node.keywords:
            if not _is_description(function, keyword):
                self.visit(keyword)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        """`for name in inspect.signature(x).parameters` is about names alone."""
        if isinstance(node.iter, ast.Attribute) and node.iter.attr == "parameters":
            call = node.iter.value
            if isinstance(call, ast.Call) and dotted(call.func) == "inspect.signature":
                self.passed.update(("", "signature", one.id) for one in call.args if isinstance(one, ast.Name))
                for one in (node.target, *node.ifs, *(one for one in call.args if not isinstance(one, ast.Name))):
                    self.visit(one)
                return
        self.generic_visit(node)

    def _is_of_own_parameter(self, call: ast.Call) -> bool:
        """Whether a call is of the first parameter of the function around it, which does nothing more with that."""
        around = self._functions[-1:]
        given = [one.id for one in call.args if isinstance(one, ast.Name)]
        return bool(around) and _is_sink(around[0]) and given == [around[0].args.args[0].arg] and not call.keywords

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if _is_beside_module(node):
            return
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            if node.value.isidentifier():
                self.used.add(node.value)  # as in getattr(module, "name")
                self._name(node.value)
            if node.value.endswith(".py") or "*.py" in node.value or "lineno" in node.value:
                self._found("source", repr(node.value))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            for part in alias.name.split("."):
                self._name(part)
            if alias.asname not in (None, alias.name):  # without another name, its uses tell
                self._module(alias.name)
                if alias.name in ("inspect", "typing", "importlib"):
                    self._found("source", alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        for alias in node.names:
            self._module(f"{module}.{alias.name}")
            for part in (*module.split("."), alias.name):
                self._name(part)
            if module == "inspect" and alias.name not in names.HARMLESS_OF_INSPECT:
                self._found("source", f"inspect.{alias.name}")
            if alias.asname not in (None, alias.name):
                self.used.add(alias.name)  # what is done with it goes by another name
                if alias.name == "get_type_hints":
                    self._found("annotations", alias.name)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        others = bool(node.keywords) or not all(_leaves_alone(one) for one in node.decorator_list)
        bases = tuple(dotted(base.value if isinstance(base, ast.Subscript) else base) for base in node.bases)
        before = self.classes.get(node.name)
        self.classes[node.name] = (bases, others) if before is None else ((*before[0], *bases), before[1] or others)
        self.generic_visit(node)

    def _name(self, name: str) -> None:
        if name in names.SOURCE:
            self._found("source", name)
        if name in names.DOCS or name == "globals":
            self._found("docs", name)
        if name in names.ANNOTATIONS or name == "globals":
            self._found("annotations", name)

    def _module(self, name: str) -> None:
        for kind, modules in (
            ("source", names.SOURCE_MODULES),
            ("docs", names.DOCS_MODULES),
            ("annotations", names.ANNOTATIONS_MODULES),
        ):
            if any(name == module or name.startswith(f"{module}.") for module in modules):
                self._found(kind, name)

    def _found(self, kind: str, name: str) -> None:
        if not getattr(self, kind):
            setattr(self, kind, name)


def _is_description(function: str, keyword: ast.keyword) -> bool:
    """`ArgumentParser(description=... .__doc__)`: shown by --help, where a stage does nothing else."""
    named = isinstance(keyword.value, ast.Attribute) and keyword.value.attr == "__doc__"
    bare = isinstance(keyword.value, ast.Name) and keyword.value.id == "__doc__"
    return function.endswith("ArgumentParser") and keyword.arg in ("description", "epilog") and (named or bare)


def _is_beside_module(node: ast.BinOp) -> bool:
    """`Path(__file__).parent / "templates"`: a file that is no code."""
    base, name = node.left, node.right
    return (
        isinstance(node.op, ast.Div)
        and isinstance(name, ast.Constant)
        and isinstance(name.value, str)
        and ".py" not in name.value
        and ".." not in name.value
        and name.value.strip("./") != ""
        and ast.unparse(base) == "Path(__file__).parent"
    )


def _defines(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """The functions and imported names that a statement of a module binds, each with the module that it comes from."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name, "."
    elif isinstance(node, ast.ImportFrom) and not node.level:
        yield from ((alias.name, node.module or "") for alias in node.names if alias.asname in (None, alias.name))


def _leaves_alone(decorator: ast.expr) -> bool:
    """Whether a decorator of a class looks at no more than the annotations in its body."""
    name = dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return name in names.PLAIN_DECORATORS


def _is_sink(function: ast.FunctionDef) -> bool:
    """Whether a function does nothing with its first parameter but call it, bind arguments to it and read its signature."""
    if not function.args.args or function.args.posonlyargs:
        return False
    name = function.args.args[0].arg
    allowed = {
        id(inner)
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        for inner in _looked_at(call)
        if isinstance(inner, ast.Name) and inner.id == name
    }
    uses = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == name]
    return all(id(node) in allowed for node in uses)


def _looked_at(call: ast.Call) -> Iterator[ast.expr]:
    yield call.func
    if dotted(call.func) in (*names.HINTS, "inspect.signature", "partial"):
        yield from call.args[:1]
