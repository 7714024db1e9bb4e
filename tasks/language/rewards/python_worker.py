"""The process in which a reward of the user's runs; a script that needs the standard library alone.

The function is the user's own code: it may print, hang, end the process or start others without harm to the run. What
it prints goes to standard error. The process leads a session of its own, and ends with all that it started when its
parent closes the connection or is killed.
"""

import importlib.util
import inspect
import json
import os
import queue
import random
import signal
import site
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from numbers import Real
from pathlib import Path
from typing import Any

Reply = dict[str, Any]  # JSON
Reward = Callable[..., Any]
HOME = Path.cwd()
MACHINE = ("/bin", "/dev", "/etc", "/lib", "/lib64", "/Library", "/proc", "/run", "/sys", "/System", "/usr")
LARGEST = 3.4e38  # what the policies' numbers of 32 bits can hold
LONGEST = 300  # characters of an exception's text in a message
SLACK = 60.0  # seconds by which the kernel's limit is later than the parent's


def main(file: str, name: str) -> None:
    """Load the function and say what is wrong with it, if anything is; then answer one call after the other."""
    parent = _Parent()
    calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_receive_calls_until_closed, args=(parent, calls), daemon=True).start()
    used = _Used()
    function, reply = load_reward_function(file, name)
    parent.tell(0, {**reply, **used.files()})
    reward = None if function is None else RewardFunction(function, file, name)
    while reward is not None:
        call = calls.get()
        # for C code, during which `_receive_calls_until_closed` cannot run
        signal.setitimer(signal.ITIMER_REAL, call["seconds"] + SLACK)
        reply = reward.compute(call["prompts"], call["responses"], call["columns"])
        signal.setitimer(signal.ITIMER_REAL, 0)
        parent.tell(call["call"], {**reply, **used.files()})


class _Parent:
    """The socket that standard input was at the start (tasks/children/child.py has its other end), for this process
    alone.

    Programs that the function starts do not inherit it, and forks close it: a fork that comes back from the function
    ends here.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self.connection = socket.socket(fileno=os.dup(0))
        with Path(os.devnull).open() as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        os.register_at_fork(after_in_child=self.connection.close)

    def tell(self, call: int, reply: Reply) -> None:
        """Reply to the call of this number."""
        if os.getpid() != self.process:
            os._exit(0)
        try:
            self.connection.sendall(json.dumps({"call": call, **reply}).encode() + b"\n")
        except OSError as error:
            sys.exit(f"the connection of this process was closed by what runs in it ({error.strerror})")


def _receive_calls_until_closed(parent: _Parent, calls: "queue.SimpleQueue[Any]") -> None:
    """Pass on what the parent asks; when it is gone, end everything here, even while the function runs."""
    with suppress(OSError), open(parent.connection.fileno(), "rb", closefd=False) as lines:
        for line in lines:
            calls.put(json.loads(line))
    os.killpg(parent.process, signal.SIGKILL)


class _Used:
    """The files of the project that the function's code consists of, and those that it reads."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        self.written: set[str] = set()
        sys.addaudithook(self._record_opened_file)

    def files(self) -> Reply:
        """The files, `imported` and `read`; of the latter none in a folder whose name begins with a dot."""
        imported = {
            *filter(_is_project_file, (getattr(module, "__file__", None) for module in [*sys.modules.values()]))
        }
        opened = {*self.read}
        self.read = set()
        elsewhere = filter(_is_foreign_file, opened - self.written)
        read = {*filter(_is_data_file, (*filter(_is_project_file, opened), *elsewhere))}
        return {"imported": sorted(imported), "read": sorted(read - imported)}

    def _record_opened_file(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str):
            writes = arguments[2] & (os.O_WRONLY | os.O_RDWR)
            (self.written if writes else self.read).add(str(Path(arguments[0]).resolve()))


def _is_project_file(file: object) -> bool:
    """Whether it is a file of the project, not of an installed package or compiled."""
    if not isinstance(file, str) or not file.startswith(f"{HOME}{os.sep}") or file.endswith(".pyc"):
        return False
    environment = Path(sys.prefix)
    return not (environment.is_relative_to(HOME) and Path(file).is_relative_to(environment))


def _is_foreign_file(file: str) -> bool:
    """Whether it is outside the project, and neither Python's, nor of an installed package, nor of the machine."""
    installed = {sys.prefix, sys.base_prefix, *site.getsitepackages(), site.getusersitepackages(), *MACHINE}
    return not any(Path(file).is_relative_to(folder) for folder in (str(HOME), *installed))


def _is_data_file(file: str) -> bool:
    return f"{os.sep}." not in file.removeprefix(str(HOME)) and not file.endswith(".pyc") and Path(file).is_file()


def load_reward_function(file: str, name: str) -> tuple[Reward | None, Reply]:
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
        return None, {"error": _format_exception(path, error)}
    function = getattr(module, name, None)
    if not callable(function):
        return None, {"error": f"{file} has no function {name}"}
    if inspect.iscoroutinefunction(function):
        return None, {"error": f"{file}: {name} is an async function; expected a plain one"}
    return function, {}


class RewardFunction:
    """The function, called with texts; or with conversations, where it was written for those that TRL hands over."""

    def __init__(self, function: Reward, file: str, name: str) -> None:
        self.function = function
        self.file = file
        self.name = name
        self.takes_turns: bool | None = None  # not known before a call has succeeded

    def compute(self, prompts: list[str], responses: list[str], columns: Mapping[str, list[Any]]) -> Reply:
        """The responses' rewards (`values`, null where none applies), or an `error`; `at` says which response it is
        about.

        `raised` is there where the function itself raised the error.
        """
        reply, error = self._call(prompts, responses, columns, bool(self.takes_turns))
        if self.takes_turns is None and isinstance(error, IndexError):  # of an empty text, which tells nothing
            _, error = self._call(prompts, [text or " " for text in responses], columns, False)
        if self.takes_turns is None and _is_text_read_as_turns(error):
            texts_error = reply["error"]
            reply, error = self._call(prompts, responses, columns, True)
            if "error" in reply:
                return {**reply, "error": f"{texts_error}; with TRL's conversations: {reply['error']}"}
            self.takes_turns = True
            print(f"{self.file}:{self.name}: gets completions and prompts as lists of turns, as in TRL", flush=True)
        elif "values" in reply and self.takes_turns is None:
            self.takes_turns = False
        return reply

    def _call(
        self, prompts: list[str], responses: list[str], columns: Mapping[str, list[Any]], as_turns: bool
    ) -> tuple[Reply, BaseException | None]:
        """The reply, and what the function raised if it asks for `completions`.

        Each call finds Python's own random numbers in the same state.
        """
        available = {**columns, "prompts": prompts, "responses": responses, "completions": responses}
        if as_turns:
            available["prompts"] = [[{"role": "user", "content": text}] for text in prompts]
            available["completions"] = [[{"role": "assistant", "content": text}] for text in responses]
        random.seed(0)
        arguments: dict[str, Any] = {}
        try:
            parameters = [
                parameter
                for parameter in inspect.signature(self.function).parameters.values()
                if parameter.kind is not parameter.VAR_POSITIONAL
            ]
            named = {
                parameter.name: parameter for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD
            }
            lacking = [
                name
                for name, parameter in named.items()
                if parameter.default is parameter.empty and name not in available
            ]
            if lacking:
                names = ", ".join(["prompts", "responses", *columns])
                return {"error": f"it asks for {lacking[0]}; there are {names}"}, None
            rest = len(named) < len(parameters)
            arguments = {
                name: [*available[name]] for name in available if name in named or (rest and name != "completions")
            }
            return convert_returned_values(self.function(**arguments), len(prompts)), None
        except BaseException as error:
            return {"error": _format_exception(HOME / self.file, error), "raised": True}, (
                error if "completions" in arguments else None
            )


def _is_text_read_as_turns(error: BaseException | None) -> bool:
    """Whether it comes of `completion[0]["content"]`, or of `.get("content")`, where `completion` is a text."""
    asked_for_key = isinstance(error, TypeError) and str(error).startswith("string indices must be integers")
    return asked_for_key or (isinstance(error, AttributeError) and error.name == "get" and isinstance(error.obj, str))


def convert_returned_values(returned: Any, count: int) -> Reply:
    """What the function returned: `count` finite numbers or None as `values`, or an `error`."""
    wanted = f"expected a list of {count} numbers or None, one for each response"
    if hasattr(returned, "tolist"):
        returned = returned.tolist()
    if not isinstance(returned, Sequence) or isinstance(returned, str | bytes):
        return {"error": f"{wanted}; got {_format_value_with_type(returned)}"}
    returned = [*returned]
    if len(returned) != count:
        return {"error": f"{wanted}; got {len(returned)}"}
    for at, value in enumerate(returned):
        if value is not None and not is_valid_reward(value):
            return {"error": f"expected a finite number or None, got {_format_value_with_type(value)}", "at": at}
    return {"values": [None if value is None else float(value) for value in returned]}


def is_valid_reward(value: Any) -> bool:
    """Whether it is a finite number of a size that a policy can be trained by."""
    try:
        return isinstance(value, Real) and abs(float(value)) <= LARGEST
    except OverflowError:  # a whole number of hundreds of digits
        return False


def _format_value_with_type(value: Any) -> str:
    return f"{_format_shortened(value, repr, 60)} ({type(value).__name__})"


def _format_shortened(value: Any, as_text: Callable[[Any], str], longest: int) -> str:
    """A value's text, without its end where it is longer; what has none is shown as such."""
    try:
        text = as_text(value)
    except Exception as error:  # a __repr__ of the user's, or a number of too many digits
        text = f"<no text: {type(error).__name__}>"
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _format_exception(path: Path, error: BaseException) -> str:
    """An exception with the place where it left the user's own files."""
    folder = f"{path.parent}{os.sep}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(folder)]
    where, line = (frames[-1].filename, frames[-1].lineno) if frames else (str(path), None)
    if isinstance(error, SyntaxError) and (error.filename or "").startswith(folder):
        where = str(error.filename)
        line = error.lineno
    message_lines = _format_shortened(error, str, 2 * LONGEST).strip().splitlines()
    location = f"{os.path.relpath(where, HOME)}{f':{line}' if line else ''}"
    return f"{location}: {_format_shortened(type(error).__name__, str, LONGEST)}{f': {_format_shortened(message_lines[0], str, LONGEST)}' if message_lines else ''}"  # noqa: E501


if __name__ == "__main__":
    main(*sys.argv[1:])
