"""Environments of the user's: a class in a file below environments/, whose episodes run in processes of their own
(host.py).

A fault of an episode ends that episode, with no reward for its last turn, and is told with the file, the game and the
turn. An environment that cannot open a single game is refused. An episode is cut off after the environment's
`max_turns`, and a game whose answers take more than its `max_seconds` in all ends the stage.
"""

import atexit
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from tasks.agents.environments import host
from tasks.agents.environments.host import FAULTS, TURNS_CUT
from tasks.agents.environments.protocol import GameError, GameFault, Message, Setting, SettingError, Turn
from tasks.children.child import READY, Child, ChildEnded, WrongReply
from tasks.common.terminal import format_in_one_line

NAME = re.compile(r"environments/(?:[\w-]+/)*[\w-]+\.py:[A-Za-z_]\w*", re.ASCII)
LOAD_SECONDS = 120.0  # for what the file imports
SLACK = 60.0  # seconds by which the limit for the host is longer than that for an episode
# In a fork the threads of a pool are gone, and whoever waits for them waits for ever: no library is to start any.
NO_THREADS = {
    **dict.fromkeys(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "RAYON_NUM_THREADS"), "1"
    ),
    "TOKENIZERS_PARALLELISM": "false",
}
TOLD = 20  # faults that are told, of all


class Hosted(Child):
    """One process with one environment's class, as its parent sees it."""

    def __init__(self, name: str, settings: str, seconds: float) -> None:
        """Start it and load the class; SettingError with one line where that fails."""
        self.name = name
        self.seconds = seconds
        file, _, class_name = name.partition(":")
        super().__init__(
            [sys.executable, "-P", "-B", host.__file__, file, class_name, settings, str(seconds)],
            {**os.environ, **NO_THREADS, "PYTHONHASHSEED": "0"},  # the same order of a set in each run
        )
        self.numbers = count()
        self.printed_faults = 0
        self.asked: dict[int, str] = {}  # what is asked, by the number of the question
        if wrong := self.reply(READY, LOAD_SECONDS).get("fault"):
            self.close()
            raise SettingError(wrong)

    def about(self, number: int, op: str, **more: object) -> int:
        """Ask something of the episode of this number; the question's own number."""
        call = self.ask({"id": number, "op": op, **more}, self.seconds + SLACK)
        self.asked[call] = op
        return call

    def reply(self, number: int, seconds: float | None = None) -> dict[str, Any]:
        """What is said of an episode; GameError where that is no reply.

        The host keeps to the limit of time, and this process to a longer one, or to `seconds`.
        """
        op = self.asked.pop(number, "load")
        try:
            return host.parse_reply(op, super().reply(number, seconds or self.seconds + SLACK))
        except ChildEnded as ended:
            return {"fault": f"the process of the environment {ended}"}
        except (WrongReply, ValueError, TypeError, KeyError) as wrong:
            self.close()
            why = wrong if isinstance(wrong, WrongReply) else "said something else than its host"
            raise GameError(f"{self.name}: its process {why}") from None

    def tell(self, where: str, what: str) -> None:
        """Name a fault on standard error; of many the first ones."""
        self.printed_faults += 1
        if self.printed_faults <= TOLD:
            more = "; further faults are counted alone" if self.printed_faults == TOLD else ""
            print(f"{self.name}: {where}: {format_in_one_line(what)}{more}", file=sys.stderr, flush=True)


HOSTS: dict[tuple[str, str, float], Hosted] = {}


def get_or_start_host(name: str, settings: str, seconds: float) -> Hosted:
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


class HostedGame:
    """One game of the user's environment."""

    def __init__(self, name: str, settings: Mapping[str, Setting], seconds: float) -> None:
        """SettingError where the file cannot be loaded."""
        self.host = get_or_start_host(name, json.dumps(dict(settings), sort_keys=True), seconds)
        self.number = next(self.host.numbers)
        self.seed = 0
        self.turn = 0
        self.over = True
        self.call = READY  # the number of the last question
        self.knows: list[str] = []  # which of best_action and optimum there are
        # what ended it, with the game and the turn
        self.max_turns = host.TURNS
        self.fault = ""

    def reset(self, seed: int) -> Sequence[Message]:
        """Open the game; GameFault where that fails."""
        self.close()
        self.seed = seed
        self.turn = 0
        self.over = False
        reply = self.host.reply(self.host.about(self.number, "open", seed=seed))
        if wrong := reply.get("fault"):
            self.over = True
            self.host.tell(f"game {seed}", wrong)
            raise GameFault(wrong)
        self._check_time_limit(reply)
        self.knows = reply["knows"]
        self.max_turns = reply["max_turns"]
        messages: list[Message] = reply["messages"]
        return messages

    def ask(self, action: str) -> None:
        """Act, and do not wait."""
        self.turn += 1
        self.call = self.host.about(self.number, "step", action=action)

    def answer(self) -> Turn:
        """What follows the action that was asked."""
        reply = self.host.reply(self.call)
        if wrong := reply.get("fault"):
            self.over = True
            self.fault = f"game {self.seed}, turn {self.turn}: {wrong}"
            self.host.tell(f"game {self.seed}, turn {self.turn}", wrong)
            return Turn("", 0.0, True, {FAULTS: 1.0})
        self._check_time_limit(reply)
        cut = not reply["done"] and self.turn >= self.max_turns
        if reply["done"] or cut:
            self.close()
        counted = {**reply["counted"], TURNS_CUT: 1.0} if cut else reply["counted"]
        return Turn(reply["observation"], reply["reward"], reply["done"] or cut, counted)

    def step(self, action: str) -> Turn:
        """Act and wait."""
        self.ask(action)
        return self.answer()

    def best_action(self) -> str:
        """What the environment itself would do; GameError where that fails."""
        return str(self._ask_for_value("best", "action"))

    def optimum(self) -> float:
        """The largest return from here on; GameError where that fails."""
        best_return: float = self._ask_for_value("optimum", "optimum")
        return best_return

    def close(self) -> None:
        """End the episode's process."""
        if not self.over:
            self.host.send({"id": self.number, "op": "close"}, SLACK)
            self.over = True

    def __del__(self) -> None:
        """So that games which are not played to their end leave no process."""
        with suppress(Exception):
            self.close()

    def _ask_for_value(self, op: str, key: str) -> Any:
        reply = self.host.reply(self.host.about(self.number, op))
        if wrong := reply.get("fault"):
            raise GameError(f"{self.host.name}: game {self.seed}, turn {self.turn}: {wrong}")
        self._check_time_limit(reply)
        return reply[key]

    def _check_time_limit(self, reply: Mapping[str, Any]) -> None:
        """GameError where the game's answers have taken more seconds in all than they may."""
        if "spent" in reply:
            self.over = True
            raise GameError(
                f"{self.host.name}: game {self.seed}: its answers took {reply['spent']:.4g} s in all by turn "
                f"{self.turn}; "
                f"expected at most {reply['most']:g} s, the environment's max_seconds"
            )


def is_episode_truncated(counted: Mapping[str, float]) -> bool:
    """Whether an episode with these counts would have gone on: a fault or the limit of turns ended it."""
    return FAULTS in counted or TURNS_CUT in counted
