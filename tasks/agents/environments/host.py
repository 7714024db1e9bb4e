"""The process in which environments of the user's run; a script that needs the standard library alone.

It imports the user's file once. Every episode is a fork of it: a hang, a crash or an exhausted memory costs that episode and no other. What
the code prints goes to standard error. The process leads a session of its own, and ends with all that it started when its parent closes
the connection or is killed.

Messages are lines of JSON. From the parent: {"id", "op": "open", "seed"}, {"id", "op": "step", "action"}, {"id", "op": "best"}, {"id", "op": "optimum"},
{"id", "op": "close"}. To the parent: {"id", ...} for each but the last, with `fault` in it where the episode is over for a reason of its own.
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
from pathlib import Path
from typing import Any

Reply = dict[str, Any]  # JSON
HOME = Path.cwd()
LONGEST = 2**20  # bytes of a reply
MEMORY = 4 * 2**30  # bytes of an episode's address space, beyond what the host had when it was forked


class Episode:
    """A fork, as the host sees it."""

    def __init__(self, process: int, connection: socket.socket) -> None:
        self.process, self.connection = process, connection
        self.read, self.due = b"", float("inf")  # what of a reply has come, and until when it must be whole

    def close(self) -> str:
        """End it and all that it started, whatever they do; how it ended, if by itself."""
        for end in (os.killpg, os.kill):
            try:
                end(self.process, signal.SIGKILL)
            except ProcessLookupError:
                pass
            except PermissionError:
                pass
        _, status = os.waitpid(self.process, 0)
        self.connection.close()
        code = os.waitstatus_to_exitcode(status)
        return f"signal {-code}" if code < 0 else f"exit status {code}"


class Host:
    """All episodes, and the parent."""

    def __init__(self, parent: socket.socket, make: Any, settings: Any, seconds: float) -> None:
        self.parent, self.make, self.settings, self.seconds = parent, make, settings, seconds
        self.episodes: dict[int, Episode] = {}
        self.waits = selectors.DefaultSelector()
        self.waits.register(parent, selectors.EVENT_READ, None)
        self.unread = b""

    def run(self) -> None:
        """Serve until the parent is gone."""
        while True:
            now = time.monotonic()
            due = min((one.due for one in self.episodes.values()), default=float("inf"))
            for key, _ in self.waits.select(None if due == float("inf") else max(0.0, due - now)):
                if key.data is None:
                    self._heard_parent()
                elif key.data in self.episodes:
                    self._heard(key.data)
            for number, one in [*self.episodes.items()]:
                if one.due <= time.monotonic():
                    self._over(number, f"took longer than {self.seconds:g} s")

    def _heard_parent(self) -> None:
        found = self.parent.recv(2**16)
        if not found:
            os.killpg(os.getpgrp(), signal.SIGKILL)
        *lines, self.unread = (self.unread + found).split(b"\n")
        for line in lines:
            self._do(json.loads(line))

    def _do(self, asked: Reply) -> None:
        number = asked["id"]
        if asked["op"] == "open":
            self._open(number, asked["seed"])
        elif number not in self.episodes:
            if asked["op"] != "close":
                self._tell({"id": number, "fault": "the episode is over"})
            return
        elif asked["op"] == "close":
            one = self.episodes.pop(number)
            self.waits.unregister(one.connection)
            one.close()
            return
        one = self.episodes[number]
        one.due = time.monotonic() + self.seconds
        try:
            one.connection.sendall(json.dumps(asked).encode() + b"\n")
        except OSError:
            self._over(number, "")

    def _open(self, number: int, seed: int) -> None:
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        process = os.fork()
        if not process:
            for one in self.episodes.values():
                one.connection.close()
            self.waits.close()
            self.parent.close()
            ours.close()
            os.setpgid(0, 0)
            play(theirs, self.make, self.settings, seed)
        theirs.close()
        self.episodes[number] = Episode(process, ours)
        self.waits.register(ours, selectors.EVENT_READ, number)

    def _heard(self, number: int) -> None:
        one = self.episodes[number]
        try:
            found = one.connection.recv(2**16)
        except OSError:
            found = b""
        if not found:
            self._over(number, "")
            return
        one.read += found
        if len(one.read) > LONGEST:
            self._over(number, f"said more than {LONGEST} bytes at once")
        elif one.read.endswith(b"\n"):
            one.read, whole, one.due = b"", one.read, float("inf")
            try:
                said = dict(json.loads(whole))
            except (ValueError, TypeError):
                said = {"fault": "something else than its host wrote to its connection"}
            if "fault" in said:
                self._over(number, str(said["fault"]))
            else:
                self._tell({**said, "id": number})

    def _over(self, number: int, why: str) -> None:
        one = self.episodes.pop(number)
        self.waits.unregister(one.connection)
        ended = one.close()
        self._tell({"id": number, "fault": why or f"ended ({ended})"})

    def _tell(self, reply: Reply) -> None:
        self.parent.sendall(json.dumps(reply).encode() + b"\n")


def play(host: socket.socket, make: Any, settings: Any, seed: int) -> None:
    """One episode, until the host ends it. Does not return."""
    if sys.platform == "linux":
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    random.seed(seed)
    lines = host.makefile("rb")
    environment: Any = None
    for line in lines:
        asked = json.loads(line)
        try:
            if asked["op"] == "open":
                environment = make(settings)
                reply = {
                    "messages": opening(environment.reset(seed)),
                    "knows": [name for name in ("best_action", "optimum") if hasattr(environment, name)],
                }
            elif asked["op"] == "step":
                reply = turn(environment.step(asked["action"]))
            elif asked["op"] == "best":
                reply = {"action": text("best_action", environment.best_action())}
            else:
                reply = {"optimum": number("optimum", environment.optimum())}
        except BaseException as error:
            reply = {"fault": in_one_line(error)}
        try:
            host.sendall(json.dumps(reply).encode() + b"\n")
        except BaseException:
            os._exit(1)
    os._exit(0)


def opening(messages: Any) -> list[Reply]:
    """The messages that `reset` returned; a text alone is one of the user's."""
    found = [{"role": "user", "content": messages}] if isinstance(messages, str) else [dict(one) for one in messages]
    for one in found:
        if (
            one.keys() != {"role", "content"}
            or one["role"] not in ("system", "user")
            or not isinstance(one["content"], str)
        ):
            raise ValueError(f"reset: expected messages with role (system or user) and content, got {shown(one)}")
    if not found or found[-1]["role"] != "user":
        raise ValueError("reset: expected the last message to be of the user")
    return found


def turn(found: Any) -> Reply:
    """What `step` returned: (observation, reward, done), or with a dictionary of counts behind them, or an object with these attributes."""
    parts = (
        found
        if isinstance(found, tuple)
        else tuple(
            getattr(found, name) for name in ("observation", "reward", "done", "counted") if hasattr(found, name)
        )
    )
    if len(parts) not in (3, 4):
        raise ValueError(
            f"step: expected (observation, reward, done) or (observation, reward, done, counted), got {shown(found)}"
        )
    observation, reward, done, counted = (*parts, {})[:4]
    if done not in (True, False):
        raise ValueError(f"step: expected done to be True or False, got {shown(done)}")
    return {
        "observation": text("step: the observation", observation),
        "reward": number("step: the reward", reward),
        "done": bool(done),
        "counted": {
            text("step: a count's name", name): number(f"step: {name}", value) for name, value in dict(counted).items()
        },
    }


def text(what: str, value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise ValueError(f"{what}: expected a text, got {shown(value)}")
    if len(value) > LONGEST // 8:
        raise ValueError(f"{what}: expected at most {LONGEST // 8} letters, got {len(value)}")
    return value


def number(what: str, value: Any) -> float:
    """A finite number."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        found = float("nan")
    if not abs(found) <= 3.4e38:
        raise ValueError(f"{what}: expected a finite number, got {shown(value)}")
    return found


def shown(value: Any) -> str:
    """A value in a message."""
    said = repr(value)
    return f"{said if len(said) <= 60 else said[:57] + '...'} ({type(value).__name__})"


def in_one_line(error: BaseException) -> str:
    """An exception with the place where it left the user's own files."""
    frames = [
        one
        for one in traceback.extract_tb(error.__traceback__)
        if one.filename.startswith(f"{HOME}{os.sep}") and one.filename != __file__
    ]
    where = f"{os.path.relpath(frames[-1].filename, HOME)}:{frames[-1].lineno}: " if frames else ""
    if isinstance(error, SyntaxError):
        return f"{os.path.relpath(error.filename or '', HOME)}:{error.lineno}: {error.msg}"
    said = str(error).strip().splitlines()
    kind = "" if where == "" and isinstance(error, ValueError) else f"{type(error).__name__}{': ' if said else ''}"
    return f"{where}{kind}{said[0][:300] if said else ''}"


def load(file: str, name: str) -> tuple[Any, str]:
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
        return None, in_one_line(error)
    found = getattr(module, name, None)
    return (found, "") if callable(found) else (None, f"{file} has no class {name}")


def main(descriptor: int, file: str, name: str, settings: str, seconds: str) -> None:
    """Load the class and say what is wrong with it, if anything is; then serve."""
    os.dup2(2, 1)
    parent = socket.socket(fileno=descriptor)
    make, wrong = load(file, name)
    parent.sendall(json.dumps({"id": -1, **({"fault": wrong} if wrong else {})}).encode() + b"\n")
    if make is not None:
        Host(parent, make, json.loads(settings), float(seconds)).run()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:6])
