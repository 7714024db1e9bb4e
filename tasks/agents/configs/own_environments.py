"""Environments of the user's: what is wrong with how params.yaml names one, without importing the file."""

import ast
from pathlib import Path, PurePosixPath


def holds(files: str, kind: str) -> bool:
    """Whether the path `files` is the file of an environment or a folder above it."""
    file = PurePosixPath(kind.partition(":")[0])
    return PurePosixPath(files) in (file, *file.parents) and files not in ("", ".")


def fault(root: Path, kind: str) -> str:
    """What is wrong with the class `environments/FILE.py:CLASS`, in one line; empty if nothing is seen.

    The file is parsed and not run. A class that is not defined at the top of the file may be imported or assigned there.
    """
    file, _, name = kind.partition(":")
    if not (root / file).is_file():
        return f"{file} does not exist"
    if not (root / file).resolve().is_relative_to(root.resolve()):
        return f"{file} is a link to a file outside this folder, where no change of it is noticed"
    try:
        body = ast.parse((root / file).read_bytes(), file).body
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        return f"{file}{f':{line}' if line else ''}: not valid Python: {getattr(error, 'msg', error)}"
    found = next((one for one in body if isinstance(one, ast.ClassDef) and one.name == name), None)
    if found is None:
        bound = {
            alias.asname or alias.name
            for one in body
            for alias in getattr(one, "names", ())
            if isinstance(alias, ast.alias)
        }
        bound |= {
            node.id
            for one in body
            for node in ast.walk(one)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        functions = {one.name for one in body if isinstance(one, ast.FunctionDef)}
        return "" if name in bound | functions else f"{file} has no class {name}"
    methods = {one.name for one in found.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    lacking = [method for method in ("reset", "step") if method not in methods]
    return f"{file}:{found.lineno}: {name} has no method {lacking[0]}" if lacking and not found.bases else ""
