"""Code of this repository that reads sources or annotations, and has been looked at: what a stage writes does not depend on it.

Each is known by the hash of its tree. After a change of it the hash is another one, and the code counts as what it looks like until
somebody has looked again; tests/flows/engine/edits/test_known.py says so.
"""

import ast
import hashlib
from collections.abc import Mapping

# Name of a function or a module's constant -> its hash, and where it is and why it is harmless.
HARMLESS: Mapping[str, tuple[str, str]] = {
    "digest": (
        "b2680eef22ec5272",
        "tasks/common/checkpoints.py: names the checkpoint that a stopped training goes on from, to the same bits",
    ),
    "ROOT": ("982f8ceeaea67454", "tasks/language/rewards/code_tests.py: where programs that are tested import from"),
    "fault": (
        "9d9b4af15cd29e74",
        "tasks/language/configs/parts/python_rewards.py: says what is wrong with params.yaml",
    ),
    "parsed": (
        "adba2a030d8ffc76",
        "tasks/language/configs/parts/python_rewards.py: says what is wrong with a file of the user's",
    ),
    "_check_files": ("9a6a676d4ec35703", "tasks/language/rewards/python_functions.py: which files are deps, by name"),
    "files": ("aa33c29278b74d66", "tasks/language/rewards/python_worker.py: which files were imported, by name"),
    "_in_one_line": ("a5c4e66957499424", "tasks/language/rewards/python_worker.py: where a user's function failed"),
    "in_one_line": ("32bb0dc8e000adc2", "tasks/agents/environments/host.py: where a user's environment failed"),
    "code_of": (
        "4934ad585f47077c",
        "tasks/agents/environments/as_gymnasium.py: names the games' code, without comments, in a data set's description",
    ),
    "_differences": (
        "035ffd265f95dbb4",
        "tasks/offline/datasets/origin.py: reads the names and defaults of another package's environment",
    ),
    "answer": ("c8357c5a2caa9fc7", "tasks/language/rewards/python_worker.py: reads the names of parameters alone"),
}


def digest(node: ast.AST) -> str:
    """The hash by which a function, without its docstring, or an assignment is known."""
    body = node.body if isinstance(node, ast.FunctionDef) else [node]
    body = body[1:] if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None else body
    head = ast.dump(node.args) if isinstance(node, ast.FunctionDef) else ""
    return hashlib.sha256("\n".join([head, *map(ast.dump, body)]).encode()).hexdigest()[:16]


def name(node: ast.AST) -> str:
    """What a function is called, or the name that is assigned to."""
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0])
    return str(getattr(node, "name", ""))


def is_harmless(node: ast.AST) -> bool:
    """Whether this very code has been looked at."""
    return name(node) in HARMLESS and HARMLESS[name(node)][0] == digest(node)
