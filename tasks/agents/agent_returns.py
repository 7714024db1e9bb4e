"""What policies earn in games that nobody has trained on: one episode of each, for every seed and temperature."""

import json
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from shutil import copyfile

import numpy as np
import pandas as pd
import torch

from tasks.agents.configs.agent_returns import AgentReturnsConfig
from tasks.agents.environments.games import find_optimal_return
from tasks.agents.environments.host import FAULTS, TURNS_CUT
from tasks.agents.playing import episode_files, playing
from tasks.agents.playing.playing import GameEpisode
from tasks.agents.playing.tables import SampledEpisodes, SampledTurns
from tasks.common import models, tables
from tasks.common.tracking import iterate_with_progress
from tasks.stage import Metrics, main

METRICS = {
    "T/return": "The mean sum of rewards over games and seeds, at each temperature.",
    "T/turns": "The mean number of turns of these episodes.",
    "faults": "The share of episodes that a fault of the environment ended, over all temperatures and seeds.",
    "turns_cut": "The share of episodes that were cut off after the environment's max_turns, likewise.",
    "context_cut": "The share of episodes that ended since the next observation and action would not have fitted "
    "into the model's context, likewise.",
    "optimum": "The mean over games of the largest return, by a search that knows the whole game: no policy that "
    "must look around reaches it.",
}
EPISODES = "sampled_episodes.parquet"
TURNS = "sampled_turns.parquet"
OF_TRAINING = ("curves.csv", "bought.json")  # handed on to the report


def run(config: AgentReturnsConfig, policies: Path, episodes: Path, environment_files: Path, out: Path) -> Metrics:
    """Measure the policy in `policies`, or those of its seeds, in the environment of `episodes`.

    `environment_files` are those of the user's environments.
    """
    world = episode_files.read_world(episodes)
    folders = episode_files.list_policy_folders(policies)
    frames = list[pd.DataFrame]()
    turns = list[pd.DataFrame]()
    context_cut = list[bool]()
    for folder, temperature in iterate_with_progress(
        [*product(folders, config.temperatures)], len(folders) * len(config.temperatures)
    ):
        if temperature == config.temperatures[0]:
            model = models.load_model(folder)
            tokenizer = models.load_tokenizer(folder)
        seed = int(folder.name.removeprefix("seed-")) if folder != policies else -1
        games = world.games("test", config.games)
        best = [find_optimal_return(game.environment) for game in games]
        generator = torch.Generator(models.choose_device()).manual_seed(config.seed)
        how = playing.build_action_sampling(model, tokenizer, config.max_action_tokens, temperature)
        played = playing.play_games(model, tokenizer, games, how, generator)
        key = {"seed": seed, "temperature": temperature}
        frames.append(_build_episode_table(played, best).assign(**key))
        turns.append(_build_turn_table(played).assign(**key))
        context_cut += [episode.context_cut for episode in played]
    sampled_episodes = pd.concat(frames, ignore_index=True)
    tables.write_table(SampledEpisodes, sampled_episodes, out / EPISODES)
    tables.write_table(SampledTurns, pd.concat(turns, ignore_index=True), out / TURNS)
    copyfile(episodes / episode_files.ENVIRONMENT, out / episode_files.ENVIRONMENT)
    for name in OF_TRAINING:
        if (policies / name).is_file():
            copyfile(policies / name, out / name)
    means: dict[str, Mapping[str, float] | float] = {
        f"t{float(str(temperature))}": {"return": float(rows["total"].mean()), "turns": float(rows["turns"].mean())}
        for temperature, rows in sampled_episodes.groupby("temperature", sort=False)
    }
    optima = sampled_episodes["optimum"].dropna()
    counted = [json.loads(row) for row in sampled_episodes["counted"]]
    means |= {name: float(np.mean([name in row for row in counted])) for name in (FAULTS, TURNS_CUT)}
    means["context_cut"] = float(np.mean(context_cut))
    return {**means, **({"optimum": float(optima.mean())} if len(optima) else {})}


def _build_episode_table(played: list[GameEpisode], best: list[float | None]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "episode": range(len(played)),
            "game": [episode.game.seed for episode in played],
            "total": [float(episode.total) for episode in played],
            "optimum": pd.Series(best, dtype=float),
            "turns": [len(episode.rewards) for episode in played],
            "counted": [json.dumps(episode.counted) for episode in played],
        }
    )


def _build_turn_table(played: list[GameEpisode]) -> pd.DataFrame:
    rows = []
    for number, episode in enumerate(played):
        for row in episode.build_turn_records(number):
            positions = [at for at, turn in enumerate(episode.transcript.turns) if turn == row["turn"]]
            acts = [at for at in positions if episode.transcript.acts[at]]
            rows.append(
                {
                    **row,
                    "tokens": [episode.transcript.tokens[at] for at in acts],
                    "logps": [episode.transcript.logps[at] for at in acts],
                    "observed": [episode.transcript.tokens[at] for at in positions if not episode.transcript.acts[at]],
                }
            )
    return pd.DataFrame(rows)


if __name__ == "__main__":
    main(run)
