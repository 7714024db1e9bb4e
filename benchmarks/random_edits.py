"""Small edits of Python files: a constant, an operator or a comparison changed, a statement dropped."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
COMPARED |= {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
OPERATORS |= {ast.Mod: ast.Mult, ast.Pow: ast.Mult}
Edit = tuple[str, int, int]  # path, index of the node in its tree and of the change among the node's changes


def iterate_node_changes(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The kind of each change to a node, and the text that takes its place."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "constant", str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield "constant", f"({node.value + 1!r})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
        yield "text", f"({node.value + 'x'!r})"
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield "operator", f"({ast.unparse(ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right))})"
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield (
            "comparison",
            f"({ast.unparse(ast.Compare(node.left, [COMPARED[type(node.ops[0])]()], node.comparators))})",
        )
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "comparison", f"({ast.unparse(ast.BoolOp(other, node.values))})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "comparison", f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.Expr | ast.Assign | ast.AugAssign | ast.Raise):
        yield "statement", "pass"
    elif isinstance(node, ast.Return) and node.value:
        yield "statement", "return None"


def list_editable_nodes(source: bytes) -> list[Any]:
    """The nodes that may be changed, without texts that nobody uses and the parts of f-strings, whose places Python
    does not know.
    """
    editable = []
    waiting = [ast.parse(source)]
    while waiting:
        node: Any = waiting.pop()
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        editable.append(node)
        waiting += ast.iter_child_nodes(node)
    return editable


def list_edits_by_kind(root: Path, lines: Mapping[str, set[int]]) -> dict[str, list[Edit]]:
    """Kind -> all edits of that kind on these lines of files below `root`."""
    kinds: dict[str, list[Edit]] = {}
    for path, numbers in sorted(lines.items()):
        for index, node in enumerate(list_editable_nodes((root / path).read_bytes())):
            if getattr(node, "lineno", 0) in numbers:
                for which, (kind, _) in enumerate(iterate_node_changes(node)):
                    kinds.setdefault(kind, []).append((path, index, which))
    return kinds


def apply_edit(source: bytes, edit: Edit) -> tuple[bytes, str]:
    """The file with the edit, and the edit as a line of text."""
    path, index, which = edit
    node = list_editable_nodes(source)[index]
    _, text = [*iterate_node_changes(node)][which]
    starts = [0, *(index + 1 for index, byte in enumerate(source) if byte == 10)]
    first = starts[node.lineno - 1] + node.col_offset
    last = starts[node.end_lineno - 1] + node.end_col_offset
    described = f"{path}:{node.lineno}: {' '.join(source[first:last].decode().split())[:60]} -> {text[:60]}"
    return source[:first] + text.encode() + source[last:], described
