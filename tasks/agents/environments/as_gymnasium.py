"""A text game as an environment of Gymnasium's kind: vectors for observations, and the actions of a data set by their
numbers.

A folder's environment.json says which game, how texts become vectors, and which actions there are; the stage
`agent_episodes` writes it. The games are of the split `test`, so that whoever learned from recorded episodes is
measured in games that none of them is from.
"""

import ast
import json
import math
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from tasks.agents.environments import games
from tasks.agents.environments.protocol import Message, Setting
from tasks.agents.environments.user_environments import is_episode_truncated
from tasks.agents.environments.vectors import GameReader, Vector, compute_observation_size

FILE = "environment.json"
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
APART = 1000  # between the first games that two seeds next to each other look at


@dataclass(frozen=True)
class Described:
    """All that a game needs to be played by numbers."""

    kind: str
    settings: dict[str, Setting]
    seconds: float  # for one answer of an environment of the user's
    features: int  # buckets of a bag
    decay: float  # of the memory
    actions: list[str]  # by their numbers
    optimum: float  # what a score of 100 is
    code: str  # a hash of the code that plays it: when it changes, so does all that was recorded and measured

    def write(self, folder: Path) -> None:
        """Keep it in the folder."""
        (folder / FILE).write_text(json.dumps(asdict(self), indent=2) + "\n")

    @property
    def numbers(self) -> dict[str, int]:
        """Each action's number."""
        return {action: number for number, action in enumerate(self.actions)}

    @property
    def observation_space(self) -> spaces.Box:
        """Vectors."""
        return spaces.Box(-np.inf, np.inf, (compute_observation_size(self.features),), np.float32)

    @property
    def action_space(self) -> spaces.Discrete:
        """The numbers of the actions."""
        return spaces.Discrete(len(self.actions))


def hash_game_code(kind: str, environment_files: Path) -> str:
    """The hash of the code of all games here, and of the user's files for a game of theirs; comments and docstrings do
    not count.
    """
    files = sorted(Path(__file__).parent.glob("*.py"))
    if games.is_user_environment(kind):
        files += sorted(environment_files.rglob("*.py")) if environment_files.is_dir() else [environment_files]
    digest = sha256()
    for file in files:
        digest.update(sha256(_dump_code_without_comments(file.read_bytes())).digest())
    return digest.hexdigest()


def _dump_code_without_comments(code: bytes) -> bytes:
    """What a file does, as text; the file itself where it is no Python."""
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        tree = ast.parse(code)
        for node in ast.walk(tree):
            if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
                node.body = node.body[1:]
        return ast.dump(tree).encode()
    return code


def join_opening_messages(opening: list[Message]) -> str:
    """What a game opens with, as one text."""
    return "\n".join(message["content"] for message in opening)


class TextGame(gymnasium.Env[Vector, int]):
    """One game after the other; a seed is a game. What is read and what was said stand in `info`, as `text` and `said`.

    A game has its own limit of seconds, and ends the stage with it.
    """

    max_seconds = math.inf

    def __init__(self, described: Described) -> None:
        self.described = described
        self.optimum = described.optimum
        self.observation_space = described.observation_space  # type: ignore[assignment]  # its vectors are float32
        self.action_space = described.action_space  # type: ignore[assignment]  # numpy's int64 is its type, int does as well
        self.game: games.Game
        self.reader: GameReader

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Vector, dict[str, Any]]:
        """Open the game of this seed; `options["game"]` is the number of a game, of whatever split."""
        super().reset(seed=seed)
        described = self.described
        if (number := (options or {}).get("game")) is not None:
            environment = games.make_game_environment(described.kind, described.settings, described.seconds)
            self.game = games.Game(number, environment, [*environment.reset(number)])
        else:
            first = APART * (int(self.np_random.integers(10**6)) if seed is None else seed)
            self.game = next(games.iterate_games(described.kind, described.settings, "test", first, described.seconds))
        self.reader = GameReader(described.features, described.decay)
        text = join_opening_messages(self.game.opening)
        return self.reader.read(text), {"text": text, "said": ""}

    def step(self, action: int) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """Say an action.

        A game that ends by its limit of turns or a fault of its environment is truncated: it would have gone on.
        """
        action_text = self.described.actions[int(action)]
        turn = self.game.environment.step(action_text)
        truncated = is_episode_truncated(turn.counted)
        seen = self.reader.read(turn.observation, action_text)
        return (
            seen,
            turn.reward,
            turn.done and not truncated,
            truncated,
            {"text": turn.observation, "said": action_text},
        )


def make(folder: Path) -> TextGame:
    """The game of the folder's environment.json."""
    return TextGame(Described(**json.loads((folder / FILE).read_text())))
