"""The best play of an environment, found by its own search: episodes to be cloned, and to learn from offline."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from tasks.agents.configs.expert_episodes import ExpertEpisodesConfig
from tasks.agents.environments.games import find_optimal_return
from tasks.agents.environments.splits import Split
from tasks.agents.playing import episode_files
from tasks.agents.playing.tables import EpisodeTable, Turns
from tasks.common import tables
from tasks.common.errors import DataError
from tasks.common.tables import Record
from tasks.stage import Metrics, main

METRICS = {
    "SPLIT/return": "The mean sum of rewards of the expert's episodes.",
    "SPLIT/turns": "The mean number of turns of these episodes.",
    "SPLIT/faults": "The share of games that a fault of the environment ended; they are left out.",
    "SPLIT/turns_cut": "The share of the episodes that were cut off after the environment's max_turns.",
}
UNENDED = 5  # games that an expert may leave unended where it ends none


def run(config: ExpertEpisodesConfig, environment_files: Path, out: Path) -> Metrics:
    """Play the games of the environment whose name `out` ends with; turns and episodes of either split go to `out`.

    `environment_files` are those of the user's environments.
    """
    environment_config = config.environments[out.name]
    world = episode_files.create_and_write_world(environment_config, config.seed, out)
    metrics = dict[str, dict[str, float]]()
    ended = False
    counts: dict[Split, int] = {"train": environment_config.episodes, "validation": environment_config.validation}
    for split, count in counts.items():
        turns = list[Record]()
        episodes = list[Record]()
        fault = ""
        for game in islice(world.iterate_games_from_seed(split, config.seed), count):  # one open game at a time
            best = find_optimal_return(game.environment)
            expert = episode_files.play_expert_game(game, len(episodes))
            fault = expert.fault or fault
            if not expert.turns:
                continue
            turns += expert.turns
            total = sum(row["reward"] for row in expert.turns)
            row = {"episode": len(episodes), "game": game.seed, "total": total, "optimum": best}
            episodes.append({**row, "turns": len(expert.turns), "cut": expert.cut})
            ended = ended or not expert.cut
            if not ended and len(episodes) == UNENDED:
                raise DataError(_format_unended_error(environment_config.kind, episodes))
        if episodes and not ended:
            raise DataError(_format_unended_error(environment_config.kind, episodes))
        if count and not episodes:
            wrong = f"all {count} games of the split {split} were ended by faults of the environment"
            raise DataError(f"{environment_config.kind}: {wrong}; the last one: {fault}")
        tables.write_table(Turns, tables.make_table_frame(Turns, turns), out / f"{split}_turns.parquet")
        table = tables.make_table_frame(EpisodeTable, episodes)
        tables.write_table(EpisodeTable, table, out / f"{split}_episodes.parquet")
        if count:
            means = {"return": float(table["total"].mean()), "turns": float(table["turns"].mean())}
            metrics[split] = {**means, "faults": 1 - len(table) / count, "turns_cut": float(table["cut"].mean())}
    return metrics


def _format_unended_error(kind: str, episodes: Sequence[Record]) -> str:
    """What is wrong with an expert that ends none of its games."""
    first = episodes[0]
    count = len(episodes)
    others = f" and the {count - 1} games after it" if count > 1 else ""
    return (
        f"{kind}: game {first['game']}{others} had not ended after {first['turns']} turns; expected an expert "
        "that ends games"
    )


if __name__ == "__main__":
    main(run)
