"""What a budget buys: demonstrations, a larger model's play, own episodes that were rated, or comparisons of own
episodes.

Each is bought until the next one would cost more than is left. What is bought follows from the budget and the
collector's seed alone, and a larger budget buys what a smaller one bought, and more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import pandas as pd

from tasks.agents.playing import episode_files
from tasks.agents.playing.collecting import SEEDS, GameCollector
from tasks.agents.playing.episode_files import World
from tasks.agents.playing.playing import GameEpisode
from tasks.algorithms.agents.preference import EpisodePair
from tasks.algorithms.agents.transcripts import Transcript
from tasks.common.errors import DataError
from tasks.common.tables import Record
from tasks.common.tokenizers import Tokenizer

FAULTY = 20  # games in a row


@dataclass
class Bought:
    """What is learned from, and what was paid for it."""

    episodes: list[Transcript] = field(default_factory=list)  # to be imitated
    pairs: list[EpisodePair] = field(default_factory=list)  # to be told apart
    number: int = 0  # of demonstrations, rated episodes or comparisons
    spent: float = 0.0  # dollars

    def pay_if_affordable(self, price: float, dollars: float) -> bool:
        """Buy one more if it can be paid for."""
        if self.spent + price > dollars:
            return False
        self.spent = self.spent + price
        self.number = self.number + 1
        return True


def buy_demonstrations(world: World, tokenizer: Tokenizer, seed: int, dollars: float, price: float) -> Bought:
    """The expert's episodes, at a price for each turn; DataError where faults of the environment end FAULTY games in a
    row.
    """
    bought = Bought()
    rows = list[Record]()
    faulty = 0
    for game in world.iterate_games_from_seed("train", world.seed + SEEDS * (seed + 1)):
        expert = episode_files.play_expert_game(game, bought.number)
        faulty = 0 if expert.turns else faulty + 1
        if faulty == FAULTY:
            raise DataError(
                f"{world.kind}: faults of the environment ended {FAULTY} games in a row; the last one: {expert.fault}"
            )
        if faulty:
            continue
        if not bought.pay_if_affordable(price * len(expert.turns), dollars):
            break
        rows += expert.turns
    return _set_bought_episodes(bought, tokenizer, rows)


def buy_teacher_episodes(teacher: GameCollector, tokenizer: Tokenizer, dollars: float, price: float) -> Bought:
    """Episodes of another model, at a price for each turn; in the words of `tokenizer`, which is the learner's."""
    bought = Bought()
    rows = list[Record]()
    for number, (episode,) in enumerate(_iterate_played_groups(teacher)):
        if not bought.pay_if_affordable(price * len(episode.rewards), dollars):
            break
        rows += episode.build_turn_records(number)
    return _set_bought_episodes(bought, tokenizer, rows)


def buy_successful_episodes(collector: GameCollector, dollars: float, price: float) -> Bought:
    """Of own episodes of one game the best, if it earned anything, at a price for each one that is rated (rejection
    sampling).
    """
    bought = Bought()
    for group in _iterate_played_groups(collector):
        if not all(bought.pay_if_affordable(price, dollars) for _ in group):
            break
        best = max(group, key=lambda episode: episode.total)
        if best.total > 0:
            bought.episodes.append(best.transcript)
    return bought


def buy_comparisons(collector: GameCollector, dollars: float, price: float) -> Bought:
    """Pairs of the first two own episodes of a game, at a price for each turn of the longer one.

    A tie costs as much, and teaches nothing.
    """
    bought = Bought()
    for first, other, *_ in _iterate_played_groups(collector):
        if not bought.pay_if_affordable(price * max(len(first.rewards), len(other.rewards)), dollars):
            break
        if first.total != other.total:
            better, worse = (first, other) if first.total > other.total else (other, first)
            bought.pairs.append(EpisodePair(better.transcript, worse.transcript))
    return bought


def _iterate_played_groups(collector: GameCollector) -> Iterator[Sequence[GameEpisode]]:
    """Games without end, with their episodes; those that had no room for a turn are left out."""
    for step in count(1):
        for group in collector.groups(step):
            if all(episode.rewards for episode in group):
                yield group


def _set_bought_episodes(bought: Bought, tokenizer: Tokenizer, rows: list[Record]) -> Bought:
    if rows:
        bought.episodes = episode_files.encode_transcripts(tokenizer, pd.DataFrame(rows))
    return bought
