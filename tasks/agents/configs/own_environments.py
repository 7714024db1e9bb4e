"""Environments of the user's: what is wrong with how params.yaml names one, without importing the file."""

import ast
from pathlib import Path

from tasks.language.configs.parts.python_rewards import assigned, parsed


def fault(root: Path, kind: str) -> str:
    """What is wrong with the class `environments/FILE.py:CLASS`, in one line; empty if nothing is seen.

    The file is parsed and not run. A class that is not defined at the top of the file may be imported or assigned there.
    """
    file, _, name = kind.partition(":")
    body, wrong = parsed(root, file)
    if wrong:
        return wrong
    found = next((one for one in body if isinstance(one, ast.ClassDef) and one.name == name), None)
    if found is None:
        return "" if name in assigned(body) else f"{file} has no class {name}"
    methods = {one.name for one in found.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    lacking = [method for method in ("reset", "step") if method not in methods]
    return f"{file}:{found.lineno}: {name} has no method {lacking[0]}" if lacking and not found.bases else ""
