"""The process in which a reward of the user's runs; a script that needs the standard library alone.

The function is the user's own code: it may print, hang, end the process or start others without harm to the run. What it
prints goes to standard error. The process leads a session of its own, and ends with all that it started when its parent closes
the connection or is killed.
"""

import importlib.util
import inspect
import json
import os
import queue
import random
import signal
import site
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from numbers import Real
from pathlib import Path
from typing import Any

Reply = dict[str, Any]  # JSON
Reward = Callable[..., Any]
HOME = Path.cwd()
MACHINE = ("/bin", "/dev", "/etc", "/lib", "/lib64", "/Library", "/proc", "/run", "/sys", "/System", "/usr")
LARGEST = 3.4e38  # what the policies' numbers of 32 bits can hold
SLACK = 60.0  # seconds by which the kernel's limit is later than the parent's


def main(descriptor: int, file: str, name: str) -> None:
    """Load the function and say what is wrong with it, if anything is; then answer one call after the other."""
    os.dup2(2, 1)
    parent = Connection(descriptor)
    calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(parent, calls), daemon=True).start()
    used = _Used()
    function, reply = load(file, name)
    parent.send_bytes(json.dumps({**reply, **used.files()}).encode())
    while function is not None:
        call = calls.get()
        signal.setitimer(signal.ITIMER_REAL, call["seconds"] + SLACK)  # for C code, during which `_listen` cannot run
        reply = answer(function, file, call["prompts"], call["responses"], call["columns"])
        signal.setitimer(signal.ITIMER_REAL, 0)
        parent.send_bytes(json.dumps({**reply, **used.files()}).encode())


def _listen(parent: Connection, calls: "queue.SimpleQueue[Any]") -> None:
    """Pass on what the parent asks; when it is gone, end everything here, even while the function runs."""
    try:
        while True:
            calls.put(json.loads(parent.recv_bytes()))
    except (EOFError, OSError):
        os.killpg(os.getpgrp(), signal.SIGKILL)


class _Used:
    """The files of the project that the function's code consists of, and those that it reads."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        self.written: set[str] = set()
        sys.addaudithook(self._opened)

    def files(self) -> Reply:
        """The files, `imported` and `read`; of the latter none in a folder whose name begins with a dot."""
        imported = {*filter(_own, (getattr(module, "__file__", None) for module in [*sys.modules.values()]))}
        opened, self.read = {*self.read}, set()
        elsewhere = filter(_elsewhere, opened - self.written)
        read = {*filter(_is_data, (*filter(_own, opened), *elsewhere))}
        return {"imported": sorted(imported), "read": sorted(read - imported)}

    def _opened(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str):
            writes = arguments[2] & (os.O_WRONLY | os.O_RDWR)
            (self.written if writes else self.read).add(str(Path(arguments[0]).resolve()))


def _own(file: object) -> bool:
    """Whether it is a file of the project, not of an installed package or compiled."""
    if not isinstance(file, str) or not file.startswith(f"{HOME}{os.sep}") or file.endswith(".pyc"):
        return False
    environment = Path(sys.prefix)
    return not (environment.is_relative_to(HOME) and Path(file).is_relative_to(environment))


def _elsewhere(file: str) -> bool:
    """Whether it is outside the project, and neither Python's, nor of an installed package, nor of the machine."""
    installed = {sys.prefix, sys.base_prefix, *site.getsitepackages(), site.getusersitepackages(), *MACHINE}
    return not any(Path(file).is_relative_to(folder) for folder in (str(HOME), *installed))


def _is_data(file: str) -> bool:
    return f"{os.sep}." not in file.removeprefix(str(HOME)) and not file.endswith(".pyc") and Path(file).is_file()


def load(file: str, name: str) -> tuple[Reward | None, Reply]:
    """The function and nothing, or no function and an `error`."""
    path = HOME / file
    sys.path.insert(0, str(path.parent))  # for modules beside it
    spec = importlib.util.spec_from_file_location("user_reward", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        return None, {"error": _in_one_line(path, error)}
    found = getattr(module, name, None)
    if not callable(found):
        return None, {"error": f"{file} has no function {name}"}
    if inspect.iscoroutinefunction(found):
        return None, {"error": f"{file}: {name} is an async function; expected a plain one"}
    return found, {}


def answer(
    function: Reward, file: str, prompts: list[str], responses: list[str], columns: Mapping[str, list[Any]]
) -> Reply:
    """The responses' rewards (`values`, null where none applies), or an `error`; `at` says which response it is about.

    `raised` is there where the function itself raised the error. Each call finds Python's own random numbers in the same state.
    """
    given = {**columns, "prompts": prompts, "responses": responses, "completions": responses}
    random.seed(0)
    try:
        parameters = [
            one for one in inspect.signature(function).parameters.values() if one.kind is not one.VAR_POSITIONAL
        ]
        named = {one.name: one for one in parameters if one.kind is not one.VAR_KEYWORD}
        lacking = [name for name, one in named.items() if one.default is one.empty and name not in given]
        if lacking:
            known = ", ".join(["prompts", "responses", *columns])
            return {"error": f"it asks for {lacking[0]}; there are {known}"}
        rest = len(named) < len(parameters)
        asked = {name: [*given[name]] for name in given if name in named or (rest and name != "completions")}
        return checked(function(**asked), len(prompts))
    except BaseException as error:
        return {"error": _in_one_line(HOME / file, error), "raised": True}


def checked(found: Any, count: int) -> Reply:
    """What the function returned: `count` finite numbers or None as `values`, or an `error`."""
    wanted = f"expected a list of {count} numbers or None, one for each response"
    if hasattr(found, "tolist"):
        found = found.tolist()
    if not isinstance(found, Sequence) or isinstance(found, str | bytes):
        return {"error": f"{wanted}; got {_shown(found)}"}
    found = [*found]
    if len(found) != count:
        return {"error": f"{wanted}; got {len(found)}"}
    for at, value in enumerate(found):
        if value is not None and not _finite(value):
            return {"error": f"expected a finite number or None, got {_shown(value)}", "at": at}
    return {"values": [None if value is None else float(value) for value in found]}


def _finite(value: Any) -> bool:
    try:
        return isinstance(value, Real) and abs(float(value)) <= LARGEST
    except OverflowError:  # a whole number of hundreds of digits
        return False


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


def _in_one_line(path: Path, error: BaseException) -> str:
    """An exception with the place where it left the user's own files."""
    folder = f"{path.parent}{os.sep}"
    frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename.startswith(folder)]
    where, line = (frames[-1].filename, frames[-1].lineno) if frames else (str(path), None)
    if isinstance(error, SyntaxError) and (error.filename or "").startswith(folder):
        where, line = str(error.filename), error.lineno
    said = str(error).strip().splitlines()
    place = f"{os.path.relpath(where, HOME)}{f':{line}' if line else ''}"
    return f"{place}: {type(error).__name__}{f': {said[0]}' if said else ''}"


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
