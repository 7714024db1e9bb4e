"""Python's syntax as text that is the same on every version of Python, without what changes nothing.

A digest has to be equal on Python 3.11, 3.12 and 3.13, whose `ast.dump` differ. Comments, layout and line numbers are
in no syntax tree.
"""

import ast
from collections.abc import Iterable

# Fields that say nothing more than the rest of the tree, or that only some versions of Python have.
LEFT_OUT = frozenset(("ctx", "kind", "type_comment", "type_ignores"))
# What ends a stage with a line: where one is raised nothing is written, whatever it says. Only `tasks.stage.main` reads
# the line.
FAILURES = frozenset(("ConfigError", "StageError", "SystemExit", "TrainingError", "WaitingError"))
Function = ast.FunctionDef | ast.AsyncFunctionDef


def dump_statement(statement: ast.stmt, *, docstrings: bool = True, plain: frozenset[str] = frozenset()) -> str:
    """A statement as text, such as `Return(value=Name(id='x',),)`. Fields that are None or an empty list are left out.

    Annotations of names inside functions are left out, since Python keeps none of them, and those of the functions in
    `plain` too. So is what a failure says that ends the stage. Without `docstrings` a docstring is left out where it
    stands. Numbers and texts are in ASCII, whole numbers in hexadecimal: neither depends on Unicode's version or a
    limit on digits.
    """
    writer = _Writer(docstrings, plain)
    writer.write(statement)
    return "".join(writer.text)


def dump_file_syntax(content: bytes) -> bytes:
    """A whole file as text, without docstrings; the file itself where it is no Python."""
    try:
        statements = ast.parse(content).body
    except (SyntaxError, ValueError):
        return content
    return "\n".join(
        dump_statement(statement, docstrings=False) for statement in statements if not _is_constant_statement(statement)
    ).encode()


def find_raised_failure(node: ast.Raise) -> ast.Name | None:
    """What a statement raises, if that is one of FAILURES. A SystemExit may have a status, which a program's parent
    reads: only one with a text counts.
    """
    call = node.exc
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in FAILURES:
        return None
    return call.func if call.func.id != "SystemExit" or all(map(_is_text_expression, call.args)) else None


def _is_text_expression(value: ast.expr) -> bool:
    """Whether an expression is plainly a text."""
    called = value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""
    constant = isinstance(value, ast.Constant) and isinstance(value.value, str)
    return constant or isinstance(value, ast.JoinedStr) or called in ("str", "message")


def _is_constant_statement(statement: ast.stmt) -> bool:
    """Whether it is a text that nobody uses, as a module's docstring."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


class _Writer:
    def __init__(self, docstrings: bool, plain: frozenset[str]) -> None:
        self.docstrings = docstrings
        self.plain = plain
        self.text: list[str] = []
        self._in_function = False

    def write(self, value: object) -> None:
        if isinstance(value, ast.AST):
            self._write_node(value)
        elif isinstance(value, list):
            self.text.append("[")
            for element in value:
                self.write(element)
                self.text.append(",")
            self.text.append("]")
        else:
            whole = isinstance(value, int) and not isinstance(value, bool)
            self.text.append(hex(value) if whole else ascii(value))  # type: ignore[arg-type]  # mypy does not see through `whole`

    def _write_node(self, node: ast.AST) -> None:
        outside = self._in_function
        if isinstance(node, Function | ast.Lambda | ast.ClassDef):
            self._in_function = not isinstance(node, ast.ClassDef)
        if isinstance(node, ast.AnnAssign) and self._in_function:
            self._write_fields("Assign" if node.value else "Local", [("targets", [node.target]), ("value", node.value)])
        elif isinstance(node, ast.Raise) and (failure := find_raised_failure(node)):
            self._write_fields("Raise", [("exc", failure)])
        elif isinstance(node, Function) and node.name in self.plain and not node.decorator_list:
            arguments = [(name, _drop_annotations(value)) for name, value in ast.iter_fields(node.args)]
            self._write_fields(type(node).__name__, [("name", node.name), ("body", self._select_body(node))])
            self._write_fields("arguments", arguments)
        else:
            fields: dict[str, object] = dict(ast.iter_fields(node))
            if isinstance(node, Function | ast.ClassDef):
                fields["body"] = self._select_body(node)
            elif isinstance(node, ast.JoinedStr):
                fields["values"] = _merge_string_parts(node)
            self._write_fields(type(node).__name__, fields.items())
        self._in_function = outside

    def _write_fields(self, name: str, fields: Iterable[tuple[str, object]]) -> None:
        self.text.append(f"{name}(")
        for field, value in fields:
            if field not in LEFT_OUT and value is not None and value != []:
                self.text.append(f"{field}=")
                self.write(value)
                self.text.append(",")
        self.text.append(")")

    def _select_body(self, node: Function | ast.ClassDef) -> list[ast.stmt]:
        if self.docstrings or find_docstring(node) is None:
            return node.body
        return node.body[1:] or [ast.Pass()]


def _drop_annotations(value: object) -> object:
    """A function's arguments by their names alone; their defaults stay."""
    if isinstance(value, ast.arg):
        return value.arg
    return [_drop_annotations(element) for element in value] if isinstance(value, list) else value


def _merge_string_parts(text: ast.JoinedStr) -> list[ast.expr]:
    """The parts of an f-string; versions of Python differ in how they cut the constant ones."""
    parts: list[ast.expr] = []
    for part in text.values:
        before = parts[-1] if parts else None
        if not (isinstance(part, ast.Constant) and isinstance(part.value, str)):
            parts.append(part)
        elif isinstance(before, ast.Constant) and isinstance(before.value, str):
            parts[-1] = ast.Constant(before.value + part.value)
        elif part.value:
            parts.append(part)
    return parts


def find_docstring(node: ast.AST) -> ast.stmt | None:
    """The statement that is the docstring of a module, class or function."""
    body = getattr(node, "body", None)
    first = body[0] if isinstance(body, list) and body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return first
    return None
