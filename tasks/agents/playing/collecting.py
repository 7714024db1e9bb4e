"""Episodes to learn from: of games of the split `train`, each played several times."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from tasks.agents.environments.games import Game
from tasks.agents.playing import playing
from tasks.agents.playing.episode_files import World
from tasks.agents.playing.playing import GameEpisode
from tasks.algorithms.agents.acting import ActionSampling
from tasks.algorithms.agents.experience import AgentExperience
from tasks.algorithms.language.causal_lm import PretrainedCausalLM
from tasks.common import models
from tasks.common.tokenizers import Tokenizer

SEEDS = 10**6  # between the first games of two seeds
DRAWS = 1_000_003


@dataclass(frozen=True)
class GameCollector:
    """Plays `games` games `episodes` times in each step; everything follows from the seed and the step alone."""

    model: PretrainedCausalLM
    tokenizer: Tokenizer
    world: World
    seed: int
    games: int
    episodes: int
    how: ActionSampling

    def __call__(self, step: int) -> AgentExperience:
        """What an algorithm learns from in step 1, 2 and so on."""
        played = [episode for group in self.groups(step) for episode in group]
        owners = [row // self.episodes for row in range(len(played))]
        return playing.build_experience(played, owners, self.tokenizer.pad_token_id)

    def groups(self, step: int) -> Sequence[Sequence[GameEpisode]]:
        """The step's episodes by their games."""
        first = self.world.seed + SEEDS * (self.seed + 1) + 10 * self.games * (step - 1)
        games = islice(self.world.iterate_games_from_seed("train", first), self.games)
        several: list[Game] = [self.world.again(game) for game in games for _ in range(self.episodes)]
        generator = torch.Generator(models.choose_device()).manual_seed(self.seed * DRAWS + step)
        played = playing.play_games(self.model, self.tokenizer, several, self.how, generator)
        return [played[at : at + self.episodes] for at in range(0, len(played), self.episodes)]
