"""What happens in the two locked processes of code_worker.py: the policy's program in one, a problem's tests in the
other.
"""

import ast
import atexit
import builtins
import importlib
import os
import random
import sys
import threading
import types
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

from tasks.language.rewards.code_calls import Channel, Program, serve_requests
from tasks.language.rewards.code_lock import lock_process, set_parent_death_signal

PASSED = b"1"
# What a program and its tests may import: nothing can be read from a file behind the lock.
PREPARED = [
    "array",
    "ast",
    "base64",
    "binascii",
    "bisect",
    "calendar",
    "cmath",
    "collections",
    "collections.abc",
    "contextlib",
    "copy",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "encodings.ascii",
    "encodings.idna",
    "encodings.latin_1",
    "enum",
    "fractions",
    "functools",
    "gc",
    "graphlib",
    "hashlib",
    "heapq",
    "html",
    "inspect",
    "io",
    "itertools",
    "json",
    "keyword",
    "locale",
    "math",
    "numbers",
    "operator",
    "os.path",
    "pprint",
    "queue",
    "random",
    "re",
    "secrets",
    "statistics",
    "string",
    "struct",
    "sys",
    "textwrap",
    "threading",
    "time",
    "traceback",
    "types",
    "typing",
    "unicodedata",
    "urllib.parse",
    "uuid",
    "weakref",
    "zlib",
    "_strptime",
]


def import_allowed_modules() -> None:
    """Import what may be imported later."""
    for name in PREPARED:
        importlib.import_module(name)


def run_locked_program(channel: int, stdin: int, seconds: int) -> NoReturn:
    """Be the program that is sent through `channel`: serve what it defines, or read `stdin` and print into the
    channel.
    """
    set_parent_death_signal()
    messages = Channel(channel)
    job = messages.receive()
    served = bool(job.get("serve"))
    os.dup2(stdin, 0)
    if not served:
        os.dup2(channel, 1)
    sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115  # a descriptor, held to the end
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    lock_process(seconds)
    _make_run_deterministic()
    module = types.ModuleType("program" if served else "__main__")
    sys.modules[module.__name__] = module  # where dataclasses look up what their annotations name
    status = 1
    try:
        _execute_setup(job["setup"], module.__dict__)
        _execute_source(job["source"], module.__dict__)
        if served:
            serve_requests(messages, module.__dict__)
        status = 0
    except SystemExit as end:
        status = 0 if end.code in (None, 0) else 1
    except BaseException:  # a program may raise anything
        status = 1
    if not served:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()
        sys.stdout.flush()
    os._exit(status)


def run_locked_tests(
    channel: int, verdict: int, program: Mapping[str, Any], job: Mapping[str, Any], seconds: int
) -> NoReturn:
    """Run the job's `tests` on the program behind `channel`; where all pass, say so in the pipe `verdict`.

    `entry` names what the tests' function `check` is given, as in HumanEval; None where tests are statements, as in
    MBPP.
    """
    set_parent_death_signal()
    lock_process(seconds)
    _make_run_deterministic()
    try:
        messages = Channel(channel)
        messages.send({**program, "serve": True})
        remote = Program(messages)
        namespace: dict[str, Any] = {"__name__": "tests"}
        _execute_setup(job["setup"], namespace)
        for name in import_modules_and_list_names(job["tests"], namespace, job["entry"]):
            with suppress(Exception):  # a name that is missing is found out where it is used
                namespace[name] = remote.ask({"do": "name", "name": name})
        for source in job["tests"]:
            _execute_source(source, namespace)
        if job["entry"] is not None:
            namespace["check"](namespace[job["entry"]])
    except BaseException:  # a failed assertion, or whatever else a test may raise
        os._exit(1)
    os.write(verdict, PASSED)
    os._exit(0)


def import_modules_and_list_names(tests: Iterable[str], namespace: dict[str, Any], entry: str | None) -> list[str]:
    """The names in `tests` that the program has to define; the modules that tests use are imported into `namespace`.

    Builtins and modules are the tests' own, so that no program can make `set` or `math.isclose` say what it likes. A
    builtin's name is the program's only where the tests name nothing else of it: MBPP has a problem that asks for a
    function `sum`.
    """
    nodes = [node for source in tests for node in ast.walk(ast.parse(source))]
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    bound |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    bound |= {(node.asname or node.name).partition(".")[0] for node in nodes if isinstance(node, ast.alias)}
    used = [node.id for node in nodes if isinstance(node, ast.Name) and node.id not in bound | namespace.keys()]
    dotted = {node.value.id for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)}
    for name in dotted.intersection(used, PREPARED):
        namespace[name] = importlib.import_module(name)
    names = [name for name in dict.fromkeys(used) if name not in namespace]
    builtin_names = [name for name in names if hasattr(builtins, name)]
    others = [name for name in names if name not in builtin_names]
    if entry is not None:
        return [*others, *({entry} - {*others})]
    return others or builtin_names


def _execute_source(source: str, namespace: dict[str, Any]) -> None:
    exec(compile(source, "<program>", "exec", dont_inherit=True), namespace)


def _execute_setup(setup: str, namespace: dict[str, Any]) -> None:
    """Run what a problem says comes first: imports, or HumanEval's prompt, which may also be a text in words."""
    with suppress(Exception):
        _execute_source(setup, namespace)


def _make_run_deterministic() -> None:
    """What makes two runs of a program alike; numbers may have as many digits as there is time for."""
    random.seed(0)
    sys.set_int_max_str_digits(0)
