"""Recorded games on disk: the expert's episodes, and the environment that they were played in."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pandas as pd

from tasks.agents.configs.expert_episodes import EnvironmentConfig
from tasks.agents.environments import games
from tasks.agents.environments.games import Game
from tasks.agents.environments.host import FAULTS, TURNS_CUT
from tasks.agents.environments.protocol import GameFault, Message, Setting, SettingError
from tasks.agents.environments.splits import Split
from tasks.agents.environments.user_environments import HostedGame
from tasks.agents.playing import encoding
from tasks.agents.playing.tables import Turns
from tasks.algorithms.agents.transcripts import Transcript
from tasks.common import tables
from tasks.common.errors import ConfigError, DataError
from tasks.common.tables import Record
from tasks.common.tokenizers import Tokenizer

ENVIRONMENT = "environment.json"


@dataclass(frozen=True)
class World:
    """An environment with its settings, and the seed of its first game."""

    kind: str
    settings: dict[str, Setting]
    seed: int
    seconds: float  # for one answer of an environment of the user's

    def games(self, split: Split, count: int) -> list[Game]:
        """The first games of a split."""
        return [*islice(self.iterate_games_from_seed(split, self.seed), count)]

    def iterate_games_from_seed(self, split: Split, seed: int) -> Iterator[Game]:
        """Games of a split without end, from another seed on."""
        try:
            yield from games.iterate_games(self.kind, self.settings, split, seed, self.seconds)
        except SettingError as error:
            raise DataError(str(error)) from None

    def again(self, game: Game) -> Game:
        """The same game in an environment of its own."""
        return self.open(game.seed)

    def open(self, number: int) -> Game:
        """The game of that seed, which was opened before."""
        environment = games.make_game_environment(self.kind, self.settings, self.seconds)
        try:
            return Game(number, environment, [*environment.reset(number)])
        except GameFault as fault:
            raise DataError(f"{self.kind}: game {number} was opened, and cannot be opened again: {fault}") from None


def create_and_write_world(config: EnvironmentConfig, seed: int, folder: Path) -> World:
    """Keep what an environment is beside its episodes."""
    world = World(config.kind, dict(config.settings), seed, config.seconds)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ENVIRONMENT).write_text(json.dumps(vars(world), indent=2) + "\n")
    return world


def read_world(folder: Path) -> World:
    """The environment whose episodes are in `folder`."""
    return World(**json.loads((folder / ENVIRONMENT).read_text()))


def list_policy_folders(folder: Path) -> list[Path]:
    """The folders of its seeds' policies in their order; the folder itself where it is one policy."""
    return sorted(folder.glob("seed-*"), key=lambda seed_folder: int(seed_folder.name.removeprefix("seed-"))) or [
        folder
    ]


def read_turns(folder: Path, split: Split) -> pd.DataFrame:
    """The recorded turns of a split."""
    return tables.read_table(Turns, folder / f"{split}_turns.parquet")


@dataclass(frozen=True)
class ExpertGame:
    """What the expert's play of a game came to."""

    turns: list[Record]
    cut: bool  # at the limit of turns
    fault: str  # of the environment, which ended it; empty where none did


def play_expert_game(game: Game, number: int) -> ExpertGame:
    """The expert's turns in a game, as the episode of this number.

    ConfigError where the environment knows no best action.
    """
    expert = games.find_solver(game.environment)
    if expert is None:
        kind = game.environment.host.name if isinstance(game.environment, HostedGame) else "this environment"
        expected = "expected 0 as episodes and as validation"
        raise ConfigError(f"params.yaml: branches.expert_episodes: {kind} has no best_action(); {expected}")
    observation = json.dumps(game.opening)
    rows = list[Record]()
    cut = False
    while True:
        action = expert.best_action()
        turn = game.environment.step(action)
        if FAULTS in turn.counted:
            return ExpertGame([], cut, game.environment.fault if isinstance(game.environment, HostedGame) else "")
        rows.append(
            {"episode": number, "turn": len(rows), "observation": observation, "action": action, "reward": turn.reward}
        )
        if turn.done:
            return ExpertGame(rows, TURNS_CUT in turn.counted, "")
        observation = turn.observation


def encode_transcripts(tokenizer: Tokenizer, turns: pd.DataFrame) -> list[Transcript]:
    """Recorded episodes as tokens."""
    encoded = []
    for _, rows in turns.groupby("episode", sort=True):
        transcript = Transcript()
        for row in tables.list_records(rows.sort_values("turn")):
            if row["turn"] == 0:
                messages: list[Message] = json.loads(row["observation"])
                transcript.observe(encoding.encode_opening(tokenizer, messages), 0)
            else:
                transcript.observe(encoding.encode_observation(tokenizer, row["observation"], ended=True), row["turn"])
            tokens = encoding.encode_action(tokenizer, row["action"])
            transcript.act(tokens, row["turn"], [0.0] * len(tokens))
        encoded.append(transcript)
    return encoded


def collect_texts(turns: pd.DataFrame) -> list[str]:
    """All that was said, for a tokenizer to be trained on."""
    first = turns["turn"] == 0
    opened = [message["content"] for opening in turns["observation"][first] for message in json.loads(opening)]
    return [*opened, *turns["observation"][~first], *turns["action"]]
