"""Environments of the user's: a class in a file below environments/, whose episodes run in processes of their own (host.py).

A fault of an episode ends that episode, with no reward for its last turn, and is told with the file, the game and the turn. An environment that cannot open a
single game is refused. An episode is cut off after the environment's `max_turns`, and a game whose answers take more than its `max_seconds` in all ends the stage.
"""

import atexit
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from tasks.agents.environments import host
from tasks.agents.environments.host import FAULTS, TURNS_CUT
from tasks.agents.environments.protocol import GameError, GameFault, Message, Setting, SettingError, Turn

NAME = re.compile(r"environments/(?:[\w-]+/)*[\w-]+\.py:[A-Za-z_]\w*", re.ASCII)
LOAD_SECONDS = 120.0  # for what the file imports
# In a fork the threads of a pool are gone, and whoever waits for them waits for ever: no library is to start any.
NO_THREADS = {
    **dict.fromkeys(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS"), "1"
    ),
    "TOKENIZERS_PARALLELISM": "false",
}
TOLD = 20  # faults that are told, of all


class Hosted:
    """One process with one environment's class, as its parent sees it."""

    def __init__(self, name: str, settings: str, seconds: float) -> None:
        """Start it and load the class; SettingError with one line where that fails."""
        self.name, self.seconds = name, seconds
        file, _, of = name.partition(":")
        self.connection, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-B", host.__file__, str(theirs.fileno()), file, of, settings, str(seconds)],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # a Ctrl-C is for the parent, which ends the process and all that it started
            env={**os.environ, **NO_THREADS, "PYTHONHASHSEED": "0"},  # the same order of a set in each run
        )
        theirs.close()
        self.unread, self.replies, self.numbers, self.told = b"", dict[int, dict[str, Any]](), count(), 0
        loaded = self.reply(-1, LOAD_SECONDS)
        if wrong := loaded.get("fault"):
            self.close()
            raise SettingError(wrong)

    def send(self, **asked: object) -> None:
        """Ask something; `reply` finds out where nobody listens."""
        with suppress(OSError):
            self.connection.sendall(json.dumps(asked).encode() + b"\n")

    def reply(self, number: int, seconds: float | None = None) -> dict[str, Any]:
        """What is said of an episode. The host keeps to the limit of time; only while it loads the parent does."""
        self.connection.settimeout(seconds)
        while number not in self.replies:
            try:
                found = self.connection.recv(2**16)
            except TimeoutError:
                return {"fault": f"the process that imports it took longer than {seconds:g} s"}
            except OSError:
                found = b""
            if not found:
                return {"fault": f"the process of the environment ended ({self.process.wait()})"}
            *lines, self.unread = (self.unread + found).split(b"\n")
            for line in lines:
                said = json.loads(line)
                self.replies[said["id"]] = said
        return self.replies.pop(number)

    def tell(self, where: str, what: str) -> None:
        """Name a fault on standard error; of many the first ones."""
        self.told += 1
        if self.told <= TOLD:
            more = "; further faults are counted alone" if self.told == TOLD else ""
            print(f"{self.name}: {where}: {what}{more}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """End it and all that it started, whatever they do."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.connection.close()


HOSTS: dict[tuple[str, str, float], Hosted] = {}


def hosted(name: str, settings: str, seconds: float) -> Hosted:
    """The process of an environment; it lives as long as this one, or until `close_hosts`."""
    key = name, settings, seconds
    if key not in HOSTS:
        if not HOSTS:
            atexit.register(close_hosts)
        HOSTS[key] = Hosted(name, settings, seconds)
    return HOSTS[key]


def close_hosts() -> None:
    """End the processes of all environments, and with them their games."""
    while HOSTS:
        HOSTS.popitem()[1].close()


class Own:
    """One game of the user's environment."""

    def __init__(self, name: str, settings: Mapping[str, Setting], seconds: float) -> None:
        """SettingError where the file cannot be loaded."""
        self.host = hosted(name, json.dumps(dict(settings), sort_keys=True), seconds)
        self.number, self.seed, self.turn, self.over = next(self.host.numbers), 0, 0, True
        self.knows: list[str] = []  # which of best_action and optimum there are
        self.max_turns, self.fault = host.TURNS, ""  # what ended it, with the game and the turn

    def reset(self, seed: int) -> Sequence[Message]:
        """Open the game; GameFault where that fails."""
        self.close()
        self.seed, self.turn, self.over = seed, 0, False
        self.host.send(id=self.number, op="open", seed=seed)
        said = self.host.reply(self.number)
        if wrong := said.get("fault"):
            self.over = True
            self.host.tell(f"game {seed}", wrong)
            raise GameFault(wrong)
        self._check_time(said)
        self.knows, self.max_turns = said["knows"], said["max_turns"]
        messages: list[Message] = said["messages"]
        return messages

    def ask(self, action: str) -> None:
        """Act, and do not wait."""
        self.turn += 1
        self.host.send(id=self.number, op="step", action=action)

    def answer(self) -> Turn:
        """What follows the action that was asked."""
        said = self.host.reply(self.number)
        if wrong := said.get("fault"):
            self.over, self.fault = True, f"game {self.seed}, turn {self.turn}: {wrong}"
            self.host.tell(f"game {self.seed}, turn {self.turn}", wrong)
            return Turn("", 0.0, True, {FAULTS: 1.0})
        self._check_time(said)
        cut = not said["done"] and self.turn >= self.max_turns
        if said["done"] or cut:
            self.close()
        counted = {**said["counted"], TURNS_CUT: 1.0} if cut else said["counted"]
        return Turn(said["observation"], said["reward"], said["done"] or cut, counted)

    def step(self, action: str) -> Turn:
        """Act and wait."""
        self.ask(action)
        return self.answer()

    def best_action(self) -> str:
        """What the environment itself would do; GameError where that fails."""
        return str(self._asked("best", "action"))

    def optimum(self) -> float:
        """The largest return from here on; GameError where that fails."""
        found: float = self._asked("optimum", "optimum")
        return found

    def close(self) -> None:
        """End the episode's process."""
        if not self.over:
            self.host.send(id=self.number, op="close")
            self.over = True

    def __del__(self) -> None:
        """So that games which are not played to their end leave no process."""
        with suppress(Exception):
            self.close()

    def _asked(self, op: str, key: str) -> Any:
        self.host.send(id=self.number, op=op)
        said = self.host.reply(self.number)
        if wrong := said.get("fault"):
            raise GameError(f"{self.host.name}: game {self.seed}, turn {self.turn}: {wrong}")
        self._check_time(said)
        return said[key]

    def _check_time(self, reply: Mapping[str, Any]) -> None:
        """GameError where the game's answers have taken more seconds in all than they may."""
        if "spent" in reply:
            self.over = True
            raise GameError(
                f"{self.host.name}: game {self.seed}: its answers took {reply['spent']:.4g} s in all by turn {self.turn}; "
                f"expected at most {reply['most']:g} s, the environment's max_seconds"
            )


def is_unfinished(counted: Mapping[str, float]) -> bool:
    """Whether an episode with these counts would have gone on: a fault or the limit of turns ended it."""
    return FAULTS in counted or TURNS_CUT in counted
