"""Environments of the user's: what is wrong with how params.yaml names one, without importing the file."""

import ast
from pathlib import Path

from tasks.language.configs.parts.python_rewards import iterate_bound_names, parse_python_file


def find_environment_class_fault(root: Path, kind: str) -> str:
    """What is wrong with the class `environments/FILE.py:CLASS`, in one line; empty if nothing is seen.

    The file is parsed and not run. A class that is not defined at the top of the file may be imported or assigned
    there.
    """
    file, _, name = kind.partition(":")
    body, wrong = parse_python_file(root, file)
    if wrong:
        return wrong
    class_node = next(
        (statement for statement in body if isinstance(statement, ast.ClassDef) and statement.name == name), None
    )
    if class_node is None:
        return "" if name in iterate_bound_names(body) else f"{file} has no class {name}"
    methods = {
        statement.name for statement in class_node.body if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    lacking = [method for method in ("reset", "step") if method not in methods]
    return f"{file}:{class_node.lineno}: {name} has no method {lacking[0]}" if lacking and not class_node.bases else ""
