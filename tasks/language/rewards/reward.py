"""How a reward is written: a decorated function in a file of by_name/, where function and file have the reward's name.

`load` imports the file of that name and no other. So a reward's code counts for the stages whose section names it, and
a new file for none (tasks/code/registries.py).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from tasks.common.errors import ConfigError

FOLDER = "tasks.language.rewards.by_name"
Columns = Mapping[str, Any]


@dataclass(frozen=True)
class AnsweredProblem:
    """One response to one problem."""

    question: str
    solution: str
    answer: str  # the reference's final answer
    response: str
    ended: bool  # it closed itself, rather than being cut off
    columns: Columns = field(default_factory=dict)  # what else the data set says of the problem


@dataclass(frozen=True)
class ByColumns:
    """What a reward reads of a prompt's further columns; prompts without them are passed over."""

    has: Callable[[Columns], bool]  # whether the prompt has them, be they in order or not
    fault: Callable[[Columns], str | None]  # what is wrong with them, in a line; None if nothing is


@dataclass(frozen=True)
class Reward:
    """A reward of responses: `judge` gets N of them, with the helper where there is one, and returns N values, nan
    where it has none.
    """

    judge: Callable[[Sequence[AnsweredProblem], Any], Sequence[float]]
    needs_answer: bool  # of the reference
    columns: ByColumns | None
    helper: Callable[[], AbstractContextManager[Any]] | None  # what a stage starts for it and ends, such as processes
    further: Mapping[str, Callable[[float], float]]  # what else is logged, by name: made of each value

    def __call__(self, answered: AnsweredProblem) -> float:
        """The reward of a single response, of a reward without a helper."""
        [value] = self.judge([answered], None)
        return value


def reward(
    *,
    needs_answer: bool = False,
    columns: ByColumns | None = None,
    further: Mapping[str, Callable[[float], float]] | None = None,
) -> Callable[[Callable[[AnsweredProblem], float]], Reward]:
    """The decorator of a function of one response; it is called only for prompts that have the columns."""

    def made(function: Callable[[AnsweredProblem], float]) -> Reward:
        def judge(answered: Sequence[AnsweredProblem], _: Any) -> list[float]:
            return [
                function(response) if columns is None or columns.has(response.columns) else math.nan
                for response in answered
            ]

        return Reward(judge, needs_answer, columns, None, further or {})

    return made


def reward_of_many(
    helper: Callable[[], AbstractContextManager[Any]],
    *,
    needs_answer: bool = False,
    columns: ByColumns | None = None,
) -> Callable[[Callable[[Sequence[AnsweredProblem], Any], Sequence[float]]], Reward]:
    """The decorator of a function of N responses and of a helper that a stage starts once for all of its steps."""

    def made(function: Callable[[Sequence[AnsweredProblem], Any], Sequence[float]]) -> Reward:
        return Reward(function, needs_answer, columns, helper, {})

    return made


def load(name: str) -> Reward:
    """The reward of this name; ConfigError where its file has none."""
    reward = getattr(import_module(f"{FOLDER}.{name}"), name, None)
    if not isinstance(reward, Reward):
        file = f"{FOLDER.replace('.', '/')}/{name}.py"
        raise ConfigError(f"{file}: expected a function {name} that is decorated with @reward() or @reward_of_many()")
    return reward
