"""What the report reads of each policy's folder, and the numbers that it makes of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tasks.agents.configs.agents_report import ReportedPolicy
from tasks.agents.playing.tables import SampledEpisodes, SampledTurns
from tasks.common import tables
from tasks.common.estimates import Estimate, estimate_mean_over_seeds

CLONE = "behaviour_cloning"


@dataclass(frozen=True)
class PolicyEpisodes:
    """A policy's episodes, turns and curve."""

    name: str
    environment: str
    trained: bool  # by rewards
    episodes: pd.DataFrame  # SampledEpisodes
    turns: pd.DataFrame  # SampledTurns
    curve: pd.DataFrame | None
    bought: Mapping[str, Any] | None = None  # source, dollars and what was spent, of a policy with a budget

    @property
    def temperatures(self) -> list[float]:
        """In their order."""
        return [float(temperature) for temperature in self.episodes["temperature"].unique()]

    def compute_seed_returns(self, temperature: float) -> list[float]:
        """Each seed's mean return."""
        rows = self.episodes[self.episodes["temperature"] == temperature]
        return [float(mean) for mean in rows.groupby("seed")["total"].mean()]

    def compute_game_returns(self, temperature: float) -> pd.Series:
        """Each game's mean return over seeds, by the environment's name and the game's number."""
        rows = self.episodes[self.episodes["temperature"] == temperature]
        means = rows.groupby("game")["total"].mean()
        return means.set_axis(pd.MultiIndex.from_product([[self.environment], means.index]))

    def best(self) -> tuple[float, list[float]]:
        """The temperature with the highest mean return, and each seed's there."""
        returns = {temperature: self.compute_seed_returns(temperature) for temperature in self.temperatures}
        top = max(returns, key=lambda temperature: np.mean(returns[temperature]))
        return top, returns[top]

    def compute_training_returns(self) -> list[float]:
        """Each seed's mean return over all training episodes: the higher, the faster it learned; nothing without a
        curve.
        """
        if self.curve is None:
            return []
        return [float(mean) for mean in self.curve.groupby("seed", sort=False)["return"].mean()]

    @property
    def optimum(self) -> float:
        """The mean over games of the largest return; nan where it is not known."""
        return float(self.episodes["optimum"].mean())

    def counted(self, temperature: float) -> dict[str, float]:
        """Means over episodes of what the environment counted."""
        rows = self.episodes[self.episodes["temperature"] == temperature]["counted"]
        frame = pd.DataFrame([json.loads(row) for row in rows]).fillna(0.0)
        return {str(name): float(frame[name].mean()) for name in sorted(frame.columns)}


@dataclass(frozen=True)
class PolicyRow:
    """A policy in the table of its environment."""

    name: str
    cells: Mapping[float, Estimate]  # temperature -> the mean return over seeds
    turns: float
    counted: Mapping[str, float]
    seeds: int


def load_policy_episodes(folder: Path, name: str, config: ReportedPolicy) -> PolicyEpisodes:
    """One policy, as agent_returns measured it."""
    curve = folder / "curves.csv"
    bought = folder / "bought.json"
    return PolicyEpisodes(
        name,
        config.environment,
        config.stage != CLONE,
        tables.read_table(SampledEpisodes, folder / "sampled_episodes.parquet"),
        tables.read_table(SampledTurns, folder / "sampled_turns.parquet"),
        pd.read_csv(curve) if curve.is_file() else None,
        json.loads(bought.read_text()) if bought.is_file() else None,
    )


def build_policy_row(policy: PolicyEpisodes) -> PolicyRow:
    """The policy's line of the table; turns and counts are those at its best temperature."""
    temperature, seeds = policy.best()
    episodes = policy.episodes[policy.episodes["temperature"] == temperature]
    cells = {
        cell_temperature: estimate_mean_over_seeds(policy.compute_seed_returns(cell_temperature))
        for cell_temperature in policy.temperatures
    }
    return PolicyRow(policy.name, cells, float(episodes["turns"].mean()), policy.counted(temperature), len(seeds))


@dataclass(frozen=True)
class Read:
    """An episode to be read turn by turn."""

    title: str
    opening: Sequence[str]
    turns: Sequence[Mapping[str, object]]  # action, reward, and the observation behind it


def build_readable_episodes(policy: PolicyEpisodes, count: int) -> list[Read]:
    """The first episodes of the policy's first seed at its best temperature."""
    temperature, _ = policy.best()
    seed_turns = policy.turns[policy.turns["temperature"] == temperature]
    seed_turns = seed_turns[seed_turns["seed"] == seed_turns["seed"].iloc[0]]
    games = policy.episodes.drop_duplicates("episode").set_index("episode")["game"]
    totals = policy.episodes.set_index(["seed", "temperature", "episode"])["total"]
    episodes = []
    for episode in range(min(count, int(seed_turns["episode"].max()) + 1)):
        rows = tables.list_records(seed_turns[seed_turns["episode"] == episode].sort_values("turn"))
        if not rows:
            continue
        total = totals[(rows[0]["seed"], temperature, episode)]
        behind = [*(turn["observation"] for turn in rows[1:]), ""]
        turns = [
            {"action": turn["action"], "reward": turn["reward"], "observation": observation}
            for turn, observation in zip(rows, behind, strict=True)
        ]
        opening = [message["content"] for message in json.loads(rows[0]["observation"])]
        episodes.append(
            Read(f"{policy.name}, game {games[episode]}: return {total:.2f} in {len(rows)} turns", opening, turns)
        )
    return episodes
