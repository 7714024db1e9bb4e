"""The best play of an environment, found by its own search: episodes to be cloned, and to learn from offline."""

import json
from pathlib import Path

import pandas as pd

from tasks.agents.configs.expert_episodes import ExpertEpisodesConfig
from tasks.agents.environments.games import Game, Split
from tasks.agents.environments.protocol import Solvable
from tasks.agents.playing import recorded
from tasks.agents.playing.tables import Episodes, Turns
from tasks.common import tables
from tasks.stage import Metrics, main

METRICS = {
    "SPLIT/return": "The mean sum of rewards of the expert's episodes.",
    "SPLIT/turns": "The mean number of turns of these episodes.",
}


def run(config: ExpertEpisodesConfig, out: Path) -> Metrics:
    """Play the games of the environment whose name `out` ends with; turns and episodes of either split go to `out`."""
    own = config.environments[out.name]
    world = recorded.write_world(own, config.seed, out)
    metrics: dict[str, dict[str, float]] = {}
    counts: dict[Split, int] = {"train": own.episodes, "validation": own.validation}
    for split, count in counts.items():
        rows, episodes = list[dict[str, object]](), list[dict[str, object]]()
        for number, game in enumerate(world.games(split, count)):
            turns = _played(game, number)
            rows += turns
            total = sum(float(str(row["reward"])) for row in turns)
            episodes.append(
                {"episode": number, "game": game.seed, "total": total, "optimum": total, "turns": len(turns)}
            )
        tables.write(Turns, pd.DataFrame(rows), out / f"{split}_turns.parquet")
        frame = pd.DataFrame(episodes)
        tables.write(Episodes, frame, out / f"{split}_episodes.parquet")
        metrics[split] = {"return": float(frame["total"].mean()), "turns": float(frame["turns"].mean())}
    return metrics


def _played(game: Game, number: int) -> list[dict[str, object]]:
    """The expert's turns in a game."""
    environment = game.environment
    assert isinstance(environment, Solvable)
    observation, rows, done = json.dumps(game.opening), list[dict[str, object]](), False
    while not done:
        action = environment.best_action()
        turn = environment.step(action)
        rows.append(
            {"episode": number, "turn": len(rows), "observation": observation, "action": action, "reward": turn.reward}
        )
        observation, done = turn.observation, turn.done
    return rows


if __name__ == "__main__":
    main(run)
