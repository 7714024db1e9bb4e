"""Environments by name, and their games divided into splits by what they open with, so that no two splits share an opening."""

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Literal

from tasks.agents.environments.calculator import Calculator
from tasks.agents.environments.protocol import Environment, Message, Setting, Solvable
from tasks.agents.environments.rooms import Rooms

Split = Literal["train", "validation", "test"]
KINDS: Mapping[str, Callable[[Mapping[str, Setting]], Environment]] = {"rooms": Rooms, "calculator": Calculator}
BUCKETS: Mapping[Split, range] = {"test": range(0, 2), "validation": range(2, 3), "train": range(3, 10)}  # tenths


@dataclass(frozen=True)
class Game:
    """An opened game."""

    seed: int
    environment: Environment
    opening: list[Message]


def make(kind: str, settings: Mapping[str, Setting]) -> Environment:
    """An environment of one of the KINDS; SettingError where it does not take the settings."""
    return KINDS[kind](settings)


def split_of(opening: list[Message]) -> Split:
    """The split of every game that opens so."""
    bucket = zlib.crc32(json.dumps(opening).encode()) % 10
    return next(split for split, buckets in BUCKETS.items() if bucket in buckets)


def games(kind: str, settings: Mapping[str, Setting], split: Split, seed: int) -> Iterator[Game]:
    """Games of a split without end, each in an environment of its own: those of the seeds from `seed` on."""
    for number in count(seed):
        environment = make(kind, settings)
        opening = [*environment.reset(number)]
        if split_of(opening) == split:
            yield Game(number, environment, opening)


def optimum(environment: Environment) -> float | None:
    """The largest return from here on; None where the environment does not know."""
    return environment.optimum() if isinstance(environment, Solvable) else None
