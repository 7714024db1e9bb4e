"""Environments by name, and their games, each of one split."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from tasks.agents.environments.calculator import Calculator
from tasks.agents.environments.closed_book import ClosedBook
from tasks.agents.environments.facts import Facts
from tasks.agents.environments.key_to_door import KeyToDoor
from tasks.agents.environments.protocol import (
    Environment,
    GameFault,
    Message,
    Setting,
    SettingError,
    Solvable,
    Turn,
)
from tasks.agents.environments.rooms import Rooms
from tasks.agents.environments.splits import Split, compute_opening_split
from tasks.agents.environments.user_environments import NAME, HostedGame

KINDS: Mapping[str, Callable[[Mapping[str, Setting]], Environment]] = {
    "rooms": Rooms,
    "calculator": Calculator,
    "facts": Facts,
    "key-to-door": KeyToDoor,
    "closed-book": ClosedBook,
}
UNOPENED = 20  # games in a row that cannot be opened
OTHERS = 2000  # games in a row that are of other splits
SECONDS = 10.0


@dataclass(frozen=True)
class Game:
    """An opened game."""

    seed: int
    environment: Environment
    opening: list[Message]


def is_user_environment(kind: str) -> bool:
    """Whether a kind names a class in a file, not one of the KINDS."""
    return NAME.fullmatch(kind) is not None


def make_game_environment(kind: str, settings: Mapping[str, Setting], seconds: float) -> Environment:
    """An environment of one of the KINDS, or of the user's; SettingError where it does not take the settings.

    `seconds` limit each answer of one of the user's.
    """
    return HostedGame(kind, settings, seconds) if is_user_environment(kind) else KINDS[kind](settings)


def iterate_games(
    kind: str, settings: Mapping[str, Setting], split: Split, seed: int, seconds: float = SECONDS
) -> Iterator[Game]:
    """Games of a split without end, each in an environment of its own: those of the seeds from `seed` on.

    A game that cannot be opened is passed over; SettingError where UNOPENED in a row cannot, and where OTHERS in a row
    are of other splits.
    """
    faults = others = 0
    for number in count(seed):
        environment = make_game_environment(kind, settings, seconds)
        try:
            opening = [*environment.reset(number)]
        except GameFault as fault:
            faults += 1
            if faults == UNOPENED:
                raise SettingError(
                    f"{kind}: {UNOPENED} games in a row cannot be opened; the last one: {fault}"
                ) from None
            continue
        faults = 0
        others = 0 if compute_opening_split(opening) == split else others + 1
        if others == OTHERS:
            wanted = "openings that differ from game to game, since a game's split is a hash of what it opens with"
            raise SettingError(f"{kind}: none of {OTHERS} games in a row is of the split {split}; expected {wanted}")
        if not others:
            yield Game(number, environment, opening)


def step_environments(environments: Sequence[Environment], actions: Sequence[str]) -> list[Turn]:
    """Act in several games; the user's work side by side."""
    for environment, action in zip(environments, actions, strict=True):
        if isinstance(environment, HostedGame):
            environment.ask(action)
    return [
        environment.answer() if isinstance(environment, HostedGame) else environment.step(action)
        for environment, action in zip(environments, actions, strict=True)
    ]


def find_solver(environment: Environment) -> Solvable | None:
    """The environment as one that knows its best play; None where it does not."""
    if isinstance(environment, HostedGame) and "best_action" not in environment.knows:
        return None
    return environment if isinstance(environment, Solvable) else None


def find_optimal_return(environment: Environment) -> float | None:
    """The largest return from here on; None where the environment does not know."""
    if isinstance(environment, HostedGame) and "optimum" not in environment.knows:
        return None
    return environment.optimum() if isinstance(environment, Solvable) else None
