"""Episodes of agents as a data set for the offline flow: Minari's files, with vectors for observations and numbers for
actions.

Every game is of the split `train`. What was read and said stands beside the numbers, in `infos`. environment.json says
how the numbers came about, so that a policy which learned from them can play
(tasks/agents/environments/as_gymnasium.py), in games of the split `test`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pandas as pd
import torch

from tasks.agents.configs.agent_episodes import AgentEpisodesConfig, EpisodeSet
from tasks.agents.environments.as_gymnasium import Described, hash_game_code
from tasks.agents.environments.games import find_optimal_return
from tasks.agents.environments.user_environments import is_episode_truncated
from tasks.agents.playing import episode_files, minari_export, playing
from tasks.agents.playing.episode_files import World
from tasks.agents.playing.minari_export import Transcribed
from tasks.agents.playing.playing import GameEpisode
from tasks.agents.playing.tables import EpisodeTable
from tasks.common import models, tables
from tasks.common.errors import ConfigError, DataError
from tasks.common.tracking import iterate_with_progress
from tasks.stage import Metrics, main

AT_ONCE = 100  # games played side by side
# where the games begin: far from the expert's, and from those of another seed
FIRST = 5 * 10**8
SEEDS = 10**6
METRICS = {
    "episodes": "The number of episodes, without those that have a rare action (agent_episodes.least).",
    "left_out": "The share of the episodes that were left out for a rare action, from 0 to 1.",
    "turns": "The number of turns, which are the data set's transitions.",
    "actions": "The number of different texts among the actions: what a policy that learns from the data set can say.",
    "observation": "The length of an observation's vector.",
    "terminated": "The share of the episodes that the game itself ended, from 0 to 1.",
    "return": "The mean return of an episode.",
    "optimum": "What a score of 100 is in the offline flow: the mean over these games of the largest return, by a "
    "search that knows the whole game; where none is known, the highest return of an episode.",
}


def run(config: AgentEpisodesConfig, policies: Path, episodes: Path, environment_files: Path, out: Path) -> Metrics:
    """Play with what is in `policies`, in the environment of `episodes`, where the expert's are; the data set that
    `out` is named like goes there.

    `environment_files` are those of the user's environments.
    """
    episode_set = config.sets[out.name]
    world = episode_files.read_world(episodes)
    whole = [
        *_iterate_expert_episodes(episode_set, world, episodes, out.name),
        *_play_policy_episodes(config, episode_set, world, policies),
    ]
    pairs = _drop_rare_action_episodes(whole, config.least)
    kept_episodes = [episode for episode, _ in pairs]
    optima = [best for _, best in pairs if best is not None]
    returns = [sum(episode.rewards) for episode in kept_episodes]
    if not kept_episodes:
        raise DataError(
            f"branches.agent_episodes.{out.name}: no episode is left; expected a smaller agent_episodes.least"
        )
    described = Described(
        world.kind,
        world.settings,
        world.seconds,
        config.features,
        config.decay,
        actions=sorted({action for episode in kept_episodes for action in episode.actions}),
        optimum=sum(optima) / len(optima) if optima else max(returns),
        code=hash_game_code(world.kind, environment_files),
    )
    minari_export.write_minari_dataset(kept_episodes, described, out)
    return {
        "episodes": len(kept_episodes),
        "left_out": 1 - len(kept_episodes) / len(whole),
        "turns": sum(len(episode.actions) for episode in kept_episodes),
        "actions": len(described.actions),
        "observation": described.observation_space.shape[0],
        "terminated": sum(episode.terminated for episode in kept_episodes) / len(kept_episodes),
        "return": sum(returns) / len(kept_episodes),
        "optimum": described.optimum,
    }


def _iterate_expert_episodes(
    episode_set: EpisodeSet, world: World, folder: Path, name: str
) -> Iterator[tuple[Transcribed, float | None]]:
    """The expert's first recorded episodes, each with its game's optimum.

    Its actions are said again, since what is read behind the last one is not recorded.
    """
    turns = episode_files.read_turns(folder, "train")
    games = tables.list_records(
        tables.read_table(EpisodeTable, folder / "train_episodes.parquet").sort_values("episode")
    )
    if episode_set.expert > len(games):
        raise ConfigError(
            f"params.yaml: branches.agent_episodes.{name}.expert: expected at most the {len(games)} that are "
            f"recorded, got {episode_set.expert}"
        )
    turns_by_episode = {number: rows.sort_values("turn") for number, rows in turns.groupby("episode")}
    for row in games[: episode_set.expert]:
        rows = turns_by_episode[row["episode"]]
        game = world.open(row["game"])
        heard = [game.environment.step(action) for action in rows["action"]]
        if [turn.reward for turn in heard] != [*rows["reward"]]:
            raise DataError(f"{folder}: game {game.seed} pays something else than when it was recorded")
        episode = Transcribed(
            game.seed,
            game.opening,
            [*rows["action"]],
            [turn.observation for turn in heard],
            [turn.reward for turn in heard],
            terminated=heard[-1].done and not is_episode_truncated(heard[-1].counted),
        )
        yield episode, None if pd.isna(row["optimum"]) else float(row["optimum"])


def _drop_rare_action_episodes(
    pairs: Sequence[tuple[Transcribed, float | None]], least: int
) -> list[tuple[Transcribed, float | None]]:
    """The episodes whose every action is said in `least` turns or more of all.

    What is said is the policy's choice, so what is left is the play of one that makes no rare slips, in the same game.
    """
    counts = Counter(action for episode, _ in pairs for action in episode.actions)
    return [(episode, best) for episode, best in pairs if all(counts[action] >= least for action in episode.actions)]


def _play_policy_episodes(
    config: AgentEpisodesConfig, episode_set: EpisodeSet, world: World, policies: Path
) -> Iterator[tuple[Transcribed, float | None]]:
    """The policy's episodes, seed by seed, each with its game's optimum."""
    if not episode_set.episodes:
        return
    first = world.seed + FIRST + SEEDS * config.seed
    folders = episode_files.list_policy_folders(policies)
    for folder in iterate_with_progress(folders, len(folders)):
        model = models.load_model(folder)
        tokenizer = models.load_tokenizer(folder)
        generator = torch.Generator(models.choose_device()).manual_seed(config.seed)
        how = playing.build_action_sampling(model, tokenizer, config.max_action_tokens, episode_set.temperature)
        stream = islice(world.iterate_games_from_seed("train", first), episode_set.episodes)
        while games := [*islice(stream, AT_ONCE)]:
            best = [find_optimal_return(game.environment) for game in games]
            played = playing.play_games(model, tokenizer, games, how, generator)
            yield from (
                (_transcribe_episode(episode), value)
                for episode, value in zip(played, best, strict=True)
                if episode.actions
            )


def _transcribe_episode(episode: GameEpisode) -> Transcribed:
    """An episode that the context cut short, the limit of turns, or a fault of its environment, would have gone on."""
    terminated = not episode.context_cut and not is_episode_truncated(episode.counted)
    return Transcribed(
        episode.game.seed, episode.game.opening, episode.actions, episode.observations, episode.rewards, terminated
    )


if __name__ == "__main__":
    main(run)
