"""What an environment of several turns is: `reset(seed) -> messages`, `step(action) -> Turn`.

The shape is that of verifiers and OpenEnv. An environment is built from its settings, a dictionary of plain values from
params.yaml; an error in them is a SettingError. The same seed opens the same game.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypedDict, runtime_checkable

from tasks.common.errors import DataError

Setting = bool | int | float | str
WANTED: Mapping[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


class SettingError(ValueError):
    """A setting that an environment does not take: one line that says what was expected."""


class Message(TypedDict):
    """A message of a chat."""

    role: str  # system or user
    content: str


@dataclass(frozen=True)
class Turn:
    """What follows an action."""

    observation: str  # what the environment says; nobody reads it after the last turn
    reward: float
    done: bool
    counted: Mapping[str, float] = field(
        default_factory=dict
    )  # events, such as calls of a tool; summed over an episode


class Environment(Protocol):
    """A game that is played in turns, in text."""

    def reset(self, seed: int) -> Sequence[Message]:
        """Open the game of this seed; what the policy reads before its first action."""
        ...

    def step(self, action: str) -> Turn:
        """Act. Any text is an action; one that means nothing costs its turn."""
        ...


@runtime_checkable
class Solvable(Protocol):
    """An environment that knows how it is played best: its returns have a ceiling, and its play can be cloned."""

    def best_action(self) -> str:
        """An action that the largest return from here begins with."""
        ...

    def optimum(self) -> float:
        """The largest sum of rewards from here on."""
        ...


def get_number_setting(settings: Mapping[str, Setting], name: str, low: float, high: float) -> float:
    """A number among the settings, in its range; SettingError otherwise."""
    value = settings[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise SettingError(f"{name}: expected a number from {low:g} to {high:g}, got {value!r}")
    return value


def check_and_fill_settings(settings: Mapping[str, Setting], defaults: Mapping[str, Setting]) -> dict[str, Setting]:
    """The settings, with the default where one is not given; SettingError where one is unknown or of another type."""
    for name, value in settings.items():
        if name not in defaults:
            raise SettingError(f"{name}: no such setting; expected one of {', '.join(sorted(defaults))}")
        default = defaults[name]
        kind = type(default)
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise SettingError(f"{name}: expected {WANTED[kind]}, got {value!r}")
    return {**defaults, **settings}


class GameError(DataError):
    """What ends the stage: a game that takes too many seconds, or a question that it has no answer to; the line names
    game and turn.
    """


class GameFault(Exception):
    """A game that cannot be opened: one line."""
