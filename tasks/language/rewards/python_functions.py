"""Rewards in Python: functions of the user's, each in a process of its own, with a limit of time for every call.

A call that takes too long or ends the process is made again for one response at a time: a hang names its prompt and
leaves that response without a reward, not the run. What else is wrong (an exception, a number that is none) ends the
stage with one line, since a policy must not be trained by it.
"""

import math
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.children.child import READY, Child, ChildEnded, WrongReply
from tasks.common.errors import ConfigError, DataError
from tasks.language.configs.parts.python_rewards import contains_reward_file, find_reward_function_fault
from tasks.language.rewards import python_worker

LOAD_SECONDS = 120.0  # for what the file imports
GIVE_UP = 32  # responses in a row that fail alone; then it is the function's fault, not theirs
Columns = Mapping[str, Sequence[Any]]  # the prompts' other columns, each as long as the list of responses
METRICS = {  # of a step's samples
    "FUNCTION": "The mean of the function's rewards of the samples, without those that have none; "
    "0 where none has one.",
    "FUNCTION/none": "The share of the samples that have no reward by the function, from 0 to 1: it returned None, "
    "it failed, or the reward of their prompt is another one.",
    "FUNCTION/failed": "The share of the samples for which the function took longer than reward_seconds or ended "
    "its process, from 0 to 1.",
}


@dataclass(frozen=True)
class FunctionRewards:
    """The function's rewards of N responses: nan where it has none; `failed` where it took too long or ended its
    process.
    """

    values: list[float]
    failed: list[bool]


class FunctionWorker(Child):
    """One process with one function, as its parent sees it."""

    def __init__(self, name: str) -> None:
        """Start it and load the function; DataError with one line where that fails."""
        file, _, function = name.partition(":")
        super().__init__(
            [sys.executable, "-P", "-B", "-u", python_worker.__file__, file, function],
            {**os.environ, "PYTHONHASHSEED": "0"},  # the same order of a set in each run
        )
        try:
            self.loaded = _check_reply(self.reply(READY, LOAD_SECONDS))
        except (ChildEnded, WrongReply) as why:
            raise DataError(f"{file}: the process that imports it {why}") from None
        if "error" in self.loaded:
            self.close()
            raise DataError(self.loaded["error"])

    def call(
        self, prompts: Sequence[str], responses: Sequence[str], columns: Columns, seconds: float
    ) -> dict[str, Any]:
        """What python_worker.answer says of the N responses, with N `values` or an `error`.

        ChildEnded where it says nothing, and WrongReply where it says something else; the process is then closed.
        """
        call = {"prompts": prompts, "responses": responses, "columns": columns, "seconds": seconds}
        return _check_reply(self.reply(self.ask(call, seconds), seconds), len(responses))


def _check_reply(reply: dict[str, Any], count: int | None = None) -> dict[str, Any]:
    """The reply, if it is as python_worker writes it: with files, and an error or so many values, each a finite number
    or None.
    """
    files = [reply.get("imported"), reply.get("read")]
    right = all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in files)
    if "error" in reply:
        index = reply.get("at", 0)
        right = right and isinstance(reply["error"], str) and type(index) is int and 0 <= index < (count or 1)
    elif count is not None:
        values = reply.get("values")
        right = right and isinstance(values, list) and len(values) == count and all(map(_is_reward_or_none, values))
    if not right:
        wanted = "is loaded" if count is None else f"was asked for {count} rewards"
        raise WrongReply(f"{wanted} and said something else: {_format_short_repr(str(reply))}")
    return reply


def _is_reward_or_none(value: object) -> bool:
    return value is None or (type(value) in (int, float) and python_worker.is_valid_reward(value))


class PythonFunction:
    """A function `rewards/FILE.py:NAME` below the working directory; its process starts when it is first needed."""

    def __init__(self, name: str, files: Path, seconds: float) -> None:
        """`files` is the file or folder whose changes are noticed; `seconds` limits each call.

        ConfigError with one line where the function is not in it, or cannot be a reward.
        """
        kept = os.path.relpath(files)
        if not contains_reward_file(kept, name):
            wanted = (
                f"expected {name.partition(':')[0]} or a folder that holds it, since {name} is a reward that counts"
            )
            raise ConfigError(f"params.yaml: reward_files: {wanted}, got {kept!r}")
        if reason := find_reward_function_fault(Path(), name):
            raise ConfigError(f"params.yaml: reward: {name}: {reason}")
        self.name = name
        self.files = Path(kept)
        self.seconds = seconds
        self.spent = 0.0  # seconds in calls
        self.worker: FunctionWorker | None = None
        self.warned: set[str] = set()

    def __call__(self, prompts: Sequence[str], responses: Sequence[str], columns: Columns) -> FunctionRewards:
        """The rewards of N responses, each to its prompt."""
        started = time.monotonic()
        try:
            return self._judge(prompts, responses, columns)
        finally:
            self.spent += time.monotonic() - started

    def close(self) -> None:
        """End the process."""
        if self.worker is not None:
            self.worker.close()
            self.worker = None

    def _judge(self, prompts: Sequence[str], responses: Sequence[str], columns: Columns) -> FunctionRewards:
        alone = [
            ([prompt], [response], {name: [values[at]] for name, values in columns.items()})
            for at, (prompt, response) in enumerate(zip(prompts, responses, strict=True))
        ]
        if len(alone) > 1:
            try:
                reply = self._await_reply(prompts, responses, columns)
            except ChildEnded as ended:
                self._say(f"a call with {len(alone)} responses {ended}; each is judged alone")
            else:
                if reply.get("raised"):  # which of them is it?
                    for call in alone:
                        with suppress(ChildEnded):
                            self._get_values_or_raise(self._await_reply(*call), call[0])
                return FunctionRewards(self._get_values_or_raise(reply, prompts), [False] * len(alone))
        return self._judge_one_by_one(alone)

    def _judge_one_by_one(self, alone: Iterable[tuple[list[str], list[str], Columns]]) -> FunctionRewards:
        values: list[float] = []
        failed: list[bool] = []
        for call in alone:
            try:
                values += self._get_values_or_raise(self._await_reply(*call), call[0])
                failed.append(False)
            except ChildEnded as ended:
                values.append(math.nan)
                failed.append(True)
                self._say(f"the call {ended} for the prompt {_format_short_repr(call[0][0])}; it has no reward")
                if len(failed) >= GIVE_UP and all(failed[-GIVE_UP:]):
                    raise DataError(f"{self.name}: {GIVE_UP} calls in a row failed; the last one {ended}") from None
        return FunctionRewards(values, failed)

    def _await_reply(self, prompts: Sequence[str], responses: Sequence[str], columns: Columns) -> dict[str, Any]:
        if self.worker is None:
            self.worker = FunctionWorker(self.name)
            self._check_used_files(self.worker.loaded)
        try:
            reply = self.worker.call(prompts, responses, columns, self.seconds)
        except WrongReply as wrong:
            self.close()
            raise DataError(f"{self.name}: its process {wrong}") from None
        except BaseException:
            self.worker = None  # it has closed itself
            raise
        self._check_used_files(reply)
        return reply

    def _get_values_or_raise(self, reply: Mapping[str, Any], prompts: Sequence[str]) -> list[float]:
        if "error" in reply:
            at = reply.get("at", 0 if len(prompts) == 1 else None)
            prompt_note = "" if at is None else f" (for the prompt {_format_short_repr(prompts[at])})"
            raise DataError(f"{self.name}: {reply['error']}{prompt_note}")
        return [math.nan if value is None else value for value in reply["values"]]

    def _check_used_files(self, reply: Mapping[str, Any]) -> None:
        """DataError where the function imports a file whose changes would not be noticed; a warning where it reads
        one.
        """
        stage_files = {
            getattr(module, "__file__", None) for module in [*sys.modules.values()]
        }  # the stage's own, which are deps
        for how in ("imported", "read"):
            for file in map(Path, reply[how]):
                if file.is_relative_to(self.files.absolute()) or str(file) in stage_files or str(file) in self.warned:
                    continue
                shown = os.path.relpath(file) if file.is_relative_to(Path.cwd()) else file
                text = f"{self.name}: {shown} is {how}, but is not in reward_files ({self.files})"
                if how == "imported":
                    raise DataError(f"{text}: a change of it would not run the stage again")
                self._say(f"{text.removeprefix(f'{self.name}: ')}: a change of it will not run the stage again")
                self.warned.add(str(file))

    def _say(self, what: str) -> None:
        print(f"{self.name}: {what}", file=sys.stderr, flush=True)


def _format_short_repr(prompt: str) -> str:
    text = repr(prompt)
    return text if len(text) <= 80 else f"{text[:77]}...'"
