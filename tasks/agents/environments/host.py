"""The process in which environments of the user's run; a script that needs the standard library alone.

It imports the user's file once. Every episode is a fork of it: a hang, a crash or an exhausted memory costs that
episode and no other. What the code prints goes to standard error. The process leads a session of its own, and ends with
all that it started when its parent closes the connection or is killed.

Messages are lines of JSON. From the parent: {"call", "id", "op": "open", "seed"}, {"call", "id", "op": "step",
"action"}, {"call", "id", "op": "best"}, {"call", "id", "op": "optimum"}, {"id", "op": "close"}, where `id` is the
episode's number and `call` the question's. To the parent: {"call", ...} for each but the last, with `fault` in it where
the episode is over for a reason of its own, and `spent` where its answers took more seconds in all than it may. An
episode that says anything but the one reply to its question is over.

What an environment returns is checked here alone.
"""

import importlib.util
import json
import os
import random
import resource
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

Reply = dict[str, Any]  # JSON
HOME = Path.cwd()
LONGEST = 2**20  # bytes of a reply
SHOWN = 1000  # characters of a fault
TURNS, SECONDS = 1000, 600.0  # of an episode, where the environment has no max_turns or max_seconds
FAULTS, TURNS_CUT = "faults", "turns_cut"  # what is counted of an episode that a fault or the limit of turns ended
MEMORY = 4 * 2**30  # bytes of an episode's address space, beyond what the host had when it was forked


class EpisodeFork:
    """A fork, as the host sees it."""

    def __init__(self, process: int, connection: socket.socket) -> None:
        self.process, self.connection = process, connection
        self.read, self.due = b"", float("inf")  # what of a reply has come, and until when it must be whole
        self.asked: Reply | None = None  # the question that waits for it
        # Seconds: when the question was asked, what all answers took, and how many they may take.
        self.began, self.spent, self.most = 0.0, 0.0, SECONDS

    def close(self) -> str:
        """End it and all that it started, whatever they do; how it ended, if by itself."""
        for end in (os.killpg, os.kill):
            with suppress(ProcessLookupError, PermissionError):
                end(self.process, signal.SIGKILL)
        _, status = os.waitpid(self.process, 0)
        self.connection.close()
        code = os.waitstatus_to_exitcode(status)
        return f"signal {-code}" if code < 0 else f"exit status {code}"


class Host:
    """All episodes, and the parent."""

    def __init__(self, parent: socket.socket, make: Any, settings: Any, seconds: float) -> None:
        self.parent, self.make, self.settings, self.seconds = parent, make, settings, seconds
        self.episodes: dict[int, EpisodeFork] = {}
        self.over: dict[int, str] = {}  # why episodes ended that nobody had asked anything
        self.waits = selectors.DefaultSelector()
        self.waits.register(parent, selectors.EVENT_READ, None)
        self.unread = b""
        tasks = Path("/proc/self/task")
        self.threads = len([*tasks.iterdir()]) if tasks.is_dir() else 1  # after a fork there is but one

    def run(self) -> None:
        """Serve until the parent is gone."""
        while True:
            now = time.monotonic()
            due = min((episode.due for episode in self.episodes.values()), default=float("inf"))
            for key, _ in self.waits.select(None if due == float("inf") else max(0.0, due - now)):
                if key.data is None:
                    self._read_parent_requests()
                elif key.data in self.episodes:
                    self._read_episode_reply(key.data)
            for number, episode in [*self.episodes.items()]:
                if episode.due <= time.monotonic():
                    why = "; its file starts threads when it is imported, which an episode does not have"
                    self._end_episode(number, f"took longer than {self.seconds:g} s{why if self.threads > 1 else ''}")

    def _read_parent_requests(self) -> None:
        received = self.parent.recv(2**16)
        if not received:
            os.killpg(os.getpgrp(), signal.SIGKILL)
        *lines, self.unread = (self.unread + received).split(b"\n")
        for line in lines:
            self._handle_request(json.loads(line))

    def _handle_request(self, request: Reply) -> None:
        number = request["id"]
        if request["op"] == "open":
            self._open_episode(number, request["seed"])
        elif number not in self.episodes:
            why = self.over.pop(number, "the episode is over")
            if request["op"] != "close":
                self._send_to_parent({"call": request["call"], "fault": why})
            return
        elif request["op"] == "close":
            episode = self.episodes.pop(number)
            self.waits.unregister(episode.connection)
            episode.close()
            return
        episode = self.episodes[number]
        episode.asked, episode.began = request, time.monotonic()
        episode.due = episode.began + self.seconds
        try:
            episode.connection.sendall(json.dumps(request).encode() + b"\n")
        except OSError:
            self._end_episode(number, "")

    def _open_episode(self, number: int, seed: int) -> None:
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        process = os.fork()
        if not process:
            for episode in self.episodes.values():
                episode.connection.close()
            self.waits.close()
            self.parent.close()
            ours.close()
            os.setpgid(0, 0)
            serve_episode(theirs.detach(), self.make, self.settings, seed)
        theirs.close()
        self.episodes[number] = EpisodeFork(process, ours)
        self.waits.register(ours, selectors.EVENT_READ, number)

    def _read_episode_reply(self, number: int) -> None:
        episode = self.episodes[number]
        try:
            received = episode.connection.recv(2**16)
        except OSError:
            received = b""
        if not received:
            self._end_episode(number, "")
            return
        episode.read += received
        if len(episode.read) > LONGEST:
            self._end_episode(number, f"said more than {LONGEST} bytes at once")
        elif episode.read.endswith(b"\n"):
            self._said(number, episode, episode.read)

    def _said(self, number: int, episode: EpisodeFork, line: bytes) -> None:
        request: Reply = episode.asked or {}
        wrong = "something else than its host wrote to its connection"
        try:
            answer = dict(json.loads(line))
            if answer.pop("call") != request["call"]:
                raise ValueError(wrong)
            reply = parse_reply(request["op"], answer)
        except (ValueError, TypeError, KeyError, RecursionError):
            reply = {"fault": wrong}
        if "fault" in reply:
            self._end_episode(number, reply["fault"])
        else:
            episode.read, episode.due, episode.asked = b"", float("inf"), None
            self._forward_reply(number, episode, request["call"], reply)

    def _forward_reply(self, number: int, episode: EpisodeFork, call: int, reply: Reply) -> None:
        """Tell the parent of a whole reply, or that the episode has taken its time."""
        episode.spent += time.monotonic() - episode.began
        episode.most = reply.get("max_seconds", episode.most)
        if episode.spent > episode.most:
            self.waits.unregister(episode.connection)
            self.episodes.pop(number).close()
            reply = {"spent": episode.spent, "most": episode.most}
        self._send_to_parent({**reply, "call": call})

    def _end_episode(self, number: int, why: str) -> None:
        episode = self.episodes.pop(number)
        self.waits.unregister(episode.connection)
        ended = episode.close()
        fault = why or f"ended ({ended})"
        if episode.asked is None:
            self.over[number] = fault
        else:
            self._send_to_parent({"call": episode.asked["call"], "fault": fault})

    def _send_to_parent(self, reply: Reply) -> None:
        self.parent.sendall(json.dumps(reply).encode() + b"\n")


def serve_episode(descriptor: int, make: Any, settings: Any, seed: int) -> None:
    """One episode, until the host closes the socket. Does not return; an episode that comes back ends here."""
    process, host = os.getpid(), socket.socket(fileno=descriptor)
    os.register_at_fork(after_in_child=host.close)
    if sys.platform == "linux":
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    random.seed(seed)
    if set_num_threads := getattr(sys.modules.get("torch"), "set_num_threads", None):
        set_num_threads(1)  # those that the host had are not in a fork, which would wait for them for ever
    lines = open(descriptor, "rb", closefd=False)  # noqa: SIM115  # a descriptor, held to the end
    environment: Any = None
    for line in lines:
        request = json.loads(line)
        try:
            if request["op"] == "open":
                environment = make(settings)
                reply = {
                    "messages": parse_opening_messages(environment.reset(seed)),
                    "knows": [name for name in ("best_action", "optimum") if hasattr(environment, name)],
                    **parse_episode_limits(environment),
                }
            elif request["op"] == "step":
                reply = parse_step_result(environment.step(request["action"]))
            elif request["op"] == "best":
                reply = {"action": parse_text_value("best_action", environment.best_action())}
            else:
                reply = {"optimum": parse_finite_number("optimum", environment.optimum())}
        except BaseException as error:
            reply = {"fault": replace_lone_surrogates(format_error_line(error))}
        try:
            if os.getpid() == process:
                host.sendall(json.dumps({**reply, "call": request["call"]}).encode() + b"\n")
        except BaseException:
            os._exit(1)
        if os.getpid() != process:
            os._exit(0)
    os._exit(0)


def parse_opening_messages(messages: Any) -> list[Reply]:
    """The messages that `reset` returned; a text alone is one of the user's."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if isinstance(messages, tuple) and len(messages) == 2 and isinstance(messages[0], str | list):
        got = format_value(messages)
        raise ValueError(f"reset: expected a text or messages alone, not a pair with an info, got {got}")
    if not isinstance(messages, Iterable) or isinstance(messages, Mapping | bytes):
        raise ValueError(f"reset: expected a text or a list of messages, got {format_value(messages)}")
    checked = [parse_opening_message(raw_message) for raw_message in messages]
    if not checked or checked[-1]["role"] != "user":
        raise ValueError("reset: expected the last message to be of the user")
    return checked


def parse_opening_message(value: Any) -> Reply:
    """One message of an opening."""
    fits = isinstance(value, Mapping) and {*value} == {"role", "content"} and value["role"] in ("system", "user")
    if not fits or not isinstance(value["content"], str):
        raise ValueError(f"reset: expected messages with role (system or user) and content, got {format_value(value)}")
    return {"role": value["role"], "content": replace_lone_surrogates(value["content"])}


def parse_episode_limits(environment: Any) -> Reply:
    """How many turns an episode may have, and how many seconds all answers of it may take."""
    turns = unwrap_scalar(getattr(environment, "max_turns", None))
    if turns is not None and (not isinstance(turns, int) or isinstance(turns, bool) or not 1 <= turns <= 10**9):
        raise ValueError(f"max_turns: expected a whole number from 1 to 10^9, got {format_value(turns)}")
    seconds = getattr(environment, "max_seconds", None)
    if seconds is not None and parse_finite_number("max_seconds", seconds) <= 0:
        raise ValueError(f"max_seconds: expected a number above 0, got {format_value(seconds)}")
    most = SECONDS if seconds is None else parse_finite_number("max_seconds", seconds)
    return {"max_turns": turns or TURNS, "max_seconds": most}


def parse_reply(op: str, reply: Reply) -> Reply:
    """The reply to a question, if it is one of this process's; ValueError, TypeError or KeyError otherwise."""
    if "fault" in reply:
        return {"fault": replace_lone_surrogates(str(reply["fault"]))[:SHOWN]}
    if "spent" in reply:
        return {name: parse_finite_number(name, reply[name]) for name in ("spent", "most")}
    if op == "load":
        return {}
    if op == "open":
        knows = [name for name in ("best_action", "optimum") if name in reply["knows"]]
        limits = parse_episode_limits(SimpleNamespace(**reply))
        return {"messages": parse_opening_messages(reply["messages"]), "knows": knows, **limits}
    if op == "step":
        return parse_step_result((reply["observation"], reply["reward"], reply["done"], reply["counted"]))
    if op == "best":
        return {"action": parse_text_value("best_action", reply["action"])}
    return {"optimum": parse_finite_number("optimum", reply["optimum"])}


def parse_step_result(value: Any) -> Reply:
    """What `step` returned: (observation, reward, done), with counts behind them, or an object with these fields."""
    names = ("observation", "reward", "done", "counted")
    parts = value if isinstance(value, tuple) else [getattr(value, name) for name in names if hasattr(value, name)]
    if len(parts) not in (3, 4):
        wanted = "(observation, reward, done) or (observation, reward, done, counted)"
        raise ValueError(f"step: expected {wanted}, got {format_value(value)}")
    observation, reward, done, counted = (*parts, {})[:4]
    if not isinstance(unwrap_scalar(done), int) or unwrap_scalar(done) not in (0, 1):
        raise ValueError(f"step: expected done to be True or False, got {format_value(done)}")
    if not isinstance(counted, Mapping | None):
        raise ValueError(f"step: expected a dictionary of counts behind done, got {format_value(counted)}")
    counts = {parse_text_value("step: a count's name", name): amount for name, amount in (counted or {}).items()}
    if reserved := counts.keys() & {FAULTS, TURNS_CUT}:
        raise ValueError(f"step: {min(reserved)}: expected another name for a count, since this one is counted here")
    return {
        "observation": parse_text_value("step: the observation", observation),
        "reward": parse_finite_number("step: the reward", reward),
        "done": bool(unwrap_scalar(done)),
        "counted": {name: parse_finite_number(f"step: {name}", amount) for name, amount in counts.items()},
    }


def parse_text_value(what: str, value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise ValueError(f"{what}: expected a text, got {format_value(value)}")
    if len(value) > LONGEST // 8:
        raise ValueError(f"{what}: expected at most {LONGEST // 8} letters, got {len(value)}")
    return replace_lone_surrogates(value)


def replace_lone_surrogates(value: str) -> str:
    """The text with U+FFFD for lone surrogates, which no file can hold; two that are a pair become their letter."""
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def unwrap_scalar(value: Any) -> Any:
    """The one number of an array or a tensor, of whatever shape; anything else as it is."""
    try:
        return value.item()
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return value


def parse_finite_number(what: str, value: Any) -> float:
    """A finite number; a text is none."""
    try:
        result = float("nan") if isinstance(value, str | bytes | bytearray) else float(unwrap_scalar(value))
    except (TypeError, ValueError, OverflowError):
        result = float("nan")
    if not abs(result) <= 3.4e38:
        raise ValueError(f"{what}: expected a finite number, got {format_value(value)}")
    return result


def format_value(value: Any) -> str:
    """A value in a message."""
    try:
        representation = repr(value)
    except Exception as error:  # a __repr__ of the user's, or a number of too many digits
        representation = f"<no text: {type(error).__name__}>"
    return f"{representation if len(representation) <= 60 else representation[:57] + '...'} ({type(value).__name__})"


def format_error_line(error: BaseException) -> str:
    """An exception with the place where it left the user's own files."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(f"{HOME}{os.sep}") and frame.filename != __file__
    ]
    where = f"{os.path.relpath(frames[-1].filename, HOME)}:{frames[-1].lineno}: " if frames else ""
    if isinstance(error, SyntaxError):
        return f"{os.path.relpath(error.filename or '', HOME)}:{error.lineno}: {error.msg}"
    message = ""
    with suppress(Exception):  # of a __str__ of the user's
        message = "".join(str(error).strip().splitlines()[:1])[:300]
    if not where and isinstance(error, ValueError):
        return message
    return f"{where}{type(error).__name__}{': ' if message else ''}{message}"


def load_environment_class(file: str, name: str) -> tuple[Any, str]:
    """The environment's class, or what is wrong."""
    path = HOME / file
    sys.path.insert(0, str(path.parent))  # for modules beside it
    spec = importlib.util.spec_from_file_location("user_environment", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        return None, format_error_line(error)
    environment_class = getattr(module, name, None)
    return (environment_class, "") if callable(environment_class) else (None, f"{file} has no class {name}")


def main(file: str, name: str, settings: str, seconds: str) -> None:
    """Load the class and say what is wrong with it; then serve the socket that standard input was at the start."""
    process, parent = os.getpid(), socket.socket(fileno=os.dup(0))  # which no program inherits that is started here
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    make, wrong = load_environment_class(file, name)
    if os.getpid() != process:  # a fork of the file's
        os._exit(0)
    parent.sendall(json.dumps({"call": 0, **({"fault": wrong} if wrong else {})}).encode() + b"\n")
    if make is not None:
        Host(parent, make, json.loads(settings), float(seconds)).run()


if __name__ == "__main__":
    main(*sys.argv[1:5])
