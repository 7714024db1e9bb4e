"""The best play of an environment, found by its own search: episodes to be cloned, and to learn from offline."""

from pathlib import Path

from tasks.agents.configs.expert_episodes import ExpertEpisodesConfig
from tasks.agents.environments.games import optimum
from tasks.agents.environments.protocol import GameFault
from tasks.agents.environments.splits import Split
from tasks.agents.playing import recorded
from tasks.agents.playing.tables import Episodes, Turns
from tasks.common import tables
from tasks.common.errors import DataError
from tasks.common.tables import Record
from tasks.stage import Metrics, main

METRICS = {
    "SPLIT/return": "The mean sum of rewards of the expert's episodes.",
    "SPLIT/turns": "The mean number of turns of these episodes.",
    "SPLIT/faults": "The share of games that a fault of the environment ended; they are left out.",
}


def run(config: ExpertEpisodesConfig, environment_files: Path, out: Path) -> Metrics:
    """Play the games of the environment whose name `out` ends with; turns and episodes of either split go to `out`.

    `environment_files` are those of the user's environments.
    """
    own = config.environments[out.name]
    world = recorded.write_world(own, config.seed, out)
    metrics: dict[str, dict[str, float]] = {}
    counts: dict[Split, int] = {"train": own.episodes, "validation": own.validation}
    for split, count in counts.items():
        turns, episodes = list[Record](), list[Record]()
        for game in world.games(split, count):
            best, number = optimum(game.environment), len(episodes)
            try:
                played = recorded.expert_play(game, number)
            except GameFault as fault:
                raise DataError(f"{own.kind}: game {game.seed}: {fault}") from None
            if not played:
                continue
            turns += played
            total = sum(row["reward"] for row in played)
            episodes.append(
                {"episode": number, "game": game.seed, "total": total, "optimum": best, "turns": len(played)}
            )
        if count and not episodes:
            raise DataError(
                f"{own.kind}: all {count} games of the split {split} were ended by faults of the environment"
            )
        tables.write(Turns, tables.frame(Turns, turns), out / f"{split}_turns.parquet")
        found = tables.frame(Episodes, episodes)
        tables.write(Episodes, found, out / f"{split}_episodes.parquet")
        if count:
            means = {"return": float(found["total"].mean()), "turns": float(found["turns"].mean())}
            metrics[split] = {**means, "faults": 1 - len(found) / count}
    return metrics


if __name__ == "__main__":
    main(run)
