"""Edits of this repository's own modules, drawn at random: remarks have no effect, and nothing else is taken for one."""

import ast
import io
import tokenize
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from flows.engine.edits.comparing import Code
from tests.flows.toy_pipeline import REPOSITORY

MODULES = sorted((REPOSITORY / "tasks/algorithms").rglob("*.py")) + sorted((REPOSITORY / "tasks/common").glob("*.py"))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(MODULES), st.randoms(use_true_random=False))
def test_comments_and_blank_lines_anywhere_have_no_effect(file: Path, random: object) -> None:
    old = file.read_text()
    new = noisy(old, random)
    assert Code({"a.py": new.encode()}).effectless("a.py", old.encode()) in ("comments or layout", None)
    assert ast.dump(ast.parse(old)) == ast.dump(ast.parse(new))


def noisy(text: str, random: object) -> str:
    """The text with comments at the ends of some lines, and lines of comments between logical lines."""
    ends = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.NEWLINE
    }
    lines = text.splitlines()
    for number in sorted(ends, reverse=True):
        if random.random() < 0.3:  # type: ignore[attr-defined]
            lines.insert(number, "    # a remark" if random.random() < 0.5 else "")  # type: ignore[attr-defined]
    return "\n".join(lines) + "\n"


NODES = (ast.Constant, ast.BinOp, ast.Compare, ast.Name, ast.keyword, ast.Return)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(MODULES), st.integers(0, 10**6))
def test_no_change_of_a_value_a_name_or_an_operator_is_missed(file: Path, at: int) -> None:
    """Every node that is no docstring and no annotation."""
    old = file.read_text()
    tree = ast.parse(old)
    silent = {id(inner) for node in ast.walk(tree) for part in without_effect(node) for inner in ast.walk(part)}
    nodes = [node for node in ast.walk(tree) if isinstance(node, NODES) and id(node) not in silent]
    if not nodes:
        return
    mutate(nodes[at % len(nodes)])
    new = ast.unparse(tree)
    assert Code({"a.py": new.encode()}).effectless("a.py", old.encode()) is None


def without_effect(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.arg | ast.AnnAssign):
        return [node.annotation] if node.annotation else []
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
        first = node.body[:1] if node.body and ast.get_docstring(node, clean=False) is not None else []
        returns = getattr(node, "returns", None)
        return [*first, *([returns] if returns else [])]
    return []


def mutate(node: ast.AST) -> None:
    if isinstance(node, ast.Constant):
        node.value = "other" if node.value != "other" else "another"
    elif isinstance(node, ast.BinOp):
        node.op = ast.Mod() if not isinstance(node.op, ast.Mod) else ast.Add()
    elif isinstance(node, ast.Compare):
        node.ops = [ast.Is() if not isinstance(one, ast.Is) else ast.Eq() for one in node.ops]
    elif isinstance(node, ast.Name):
        node.id = f"{node.id}_other"
    elif isinstance(node, ast.keyword):
        node.arg = f"{node.arg or ''}_other"
    elif isinstance(node, ast.Return):
        node.value = ast.Constant("other")
