"""Rewards in Python: how params.yaml names such a function, and what is wrong with one, without importing the user's
file.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from tasks.common.config_faults import format_names_hint

# What the model at reward_model_path says: of any kind, or of the objective that the reward is named after.
BY_MODEL = ("reward_model", "outcome", "process")
PYTHON_REWARD = re.compile(r"^rewards/(?:[\w-]+/)*[\w-]+\.py:[A-Za-z_]\w*$", re.ASCII)
ANSWERS = ("responses", "completions")  # names of the parameter that gets them; TRL's is the second


def is_python_reward(name: str) -> bool:
    """Whether a reward's name is that of a function in a file, not of one of the repository's own rewards."""
    return PYTHON_REWARD.fullmatch(name) is not None


def contains_reward_file(files: str, name: str) -> bool:
    """Whether the path `files` is the reward's file or a folder above it."""
    file = PurePosixPath(name.partition(":")[0])
    return PurePosixPath(files) in (file, *file.parents) and files not in ("", ".")


def find_reward_function_fault(root: Path, name: str) -> str:
    """What is wrong with the function `rewards/FILE.py:FUNCTION`, in one line; empty if nothing is seen.

    The file is parsed and not run. A name that is not defined by `def` at the top of the file may be imported or
    assigned there; its parameters are known only when it is called.
    """
    file, _, function = name.partition(":")
    body, wrong = parse_python_file(root, file)
    if wrong:
        return wrong
    defined = {
        statement.name: statement for statement in body if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    definition = defined.get(function)
    if definition is None:
        if function in iterate_bound_names(body):
            return ""
        return f"{file} has no function {function}{format_names_hint(function, [*defined])}"
    if isinstance(definition, ast.AsyncFunctionDef):
        return f"{file}:{definition.lineno}: {function} is an async function; expected a plain one"
    return _find_parameter_fault(f"{file}:{definition.lineno}", definition)


def parse_python_file(root: Path, file: str) -> tuple[list[ast.stmt], str]:
    """The statements of a file of the user's, or none and what is wrong with it, in one line. It is not run."""
    if not (root / file).is_file():
        return [], f"{file} does not exist"
    if not (root / file).resolve().is_relative_to(root.resolve()):
        return [], f"{file} is a link to a file outside this folder, where no change of it is noticed"
    try:
        return ast.parse((root / file).read_bytes(), file).body, ""
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        return [], f"{file}{f':{line}' if line else ''}: not valid Python: {getattr(error, 'msg', error)}"
    except (RecursionError, MemoryError):  # Python itself would refuse it so
        return [], f"{file}: not valid Python: an expression or a statement is nested too deeply"


def iterate_bound_names(body: list[ast.stmt]) -> Iterator[str]:
    """The names that statements at the top of a file bind, besides functions."""
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.alias):
                yield "*" if node.name == "*" else (node.asname or node.name.partition(".")[0])
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield node.name


def _find_parameter_fault(location: str, definition: ast.FunctionDef) -> str:
    parameters = definition.args
    wanted = f"expected def {definition.name}(prompts, responses, **columns)"
    if parameters.posonlyargs:
        return f"{location}: {definition.name} has parameters before a /, but all are given by name; {wanted}"
    names = [parameter.arg for parameter in (*parameters.args, *parameters.kwonlyargs)]
    if parameters.kwarg is None and not {*names} & {*ANSWERS}:
        return f"{location}: {definition.name} takes no responses; {wanted}"
    return ""
