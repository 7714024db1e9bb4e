"""Two measurements of offline policies, or of agents: the returns of the same seeds in the same episodes.

Intervals are over seeds, of agents over seeds and games, as in their report.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import product
from math import inf, isfinite, isnan
from pathlib import Path
from typing import Any, cast

import pandas as pd

from tasks.agents.playing.tables import SampledEpisodes
from tasks.common import tables
from tasks.common.errors import DataError
from tasks.common.estimates import Estimate, estimate_mean_over_seeds, widen_interval_by_games
from tasks.offline.reporting.tables import PlayedEpisodes

SEEDS = "seeds"
GAMES = "seeds and games"
SAME = "same"
WITHOUT_SEEDS = -1  # the seed of a policy that is one


def compare_returns(files_a: Mapping[str, str], files_b: Mapping[str, str], same: bool) -> dict[str, Any]:
    """The JSON of one pair. Variants of one name are compared with each other; where none has a fellow, each with each.

    A training is the unit of sampling: a seed's difference is the mean over the episodes that it has in both. DataError
    if the returns are of two environments.
    """
    environments = [
        json.loads(Path(files["description.json"]).read_text())["environment"] for files in (files_a, files_b)
    ]
    if environments[0] != environments[1]:
        raise DataError(f"returns in {environments[0]} and in {environments[1]} cannot be compared: their units differ")
    a, b = (
        dict(_iterate_variant_returns(tables.read_table(PlayedEpisodes, Path(files["episodes.parquet"]))))
        for files in (files_a, files_b)
    )
    shared = [name for name in a if name in b]
    named = {name: (name, name) for name in shared} or {f"{new} minus {old}": (old, new) for old, new in product(a, b)}
    metrics = {
        f"{name}/return": _estimate_return_difference(a[old], b[new], same) for name, (old, new) in named.items()
    }
    return {
        "metrics": {name: row for name, row in metrics.items() if row},
        "only_a": sorted(set(a) - set(b)) if shared else [],
        "only_b": sorted(set(b) - set(a)) if shared else [],
    }


def compare_game_returns(files_a: Mapping[str, str], files_b: Mapping[str, str], same: bool) -> dict[str, Any]:
    """The JSON of one pair of agents: at each temperature that both have, in the games that both played.

    A clone has no seeds: each seed of the other side is held against it, and of two clones games are all there is.
    DataError if the games are of two environments.
    """
    worlds = [json.loads(Path(files["environment.json"]).read_text()) for files in (files_a, files_b)]
    if worlds[0] != worlds[1]:
        raise DataError("returns in two environments cannot be compared: their games differ")
    a, b = (tables.read_table(SampledEpisodes, Path(files["sampled_episodes.parquet"])) for files in (files_a, files_b))
    metrics = dict[str, Any]()
    for temperature in a["temperature"].unique():
        old, new = (rows[rows["temperature"] == temperature].set_index(["seed", "game"])["total"] for rows in (a, b))
        difference = _estimate_return_difference(
            _repeat_clone_for_seeds(old, new), _repeat_clone_for_seeds(new, old), same
        )
        if difference and not same:
            difference |= _widen_difference_by_games(difference, old, new)
        metrics |= {f"t{temperature:g}/return": difference} if difference else {}
    return {"metrics": metrics, "only_a": [], "only_b": []}


def _widen_difference_by_games(difference: Mapping[str, Any], old: pd.Series, new: pd.Series) -> dict[str, Any]:
    """The interval over seeds and games; none of a training with a single seed."""
    trained = [
        returns for returns in (old, new) if [*returns.index.get_level_values("seed").unique()] != [WITHOUT_SEEDS]
    ]
    if trained and difference["low"] is None:
        return {}
    bounds = (-inf, inf) if difference["low"] is None else (difference["low"], difference["high"])
    seeds = Estimate(difference["difference"], *bounds)
    by_game = (new.groupby("game").mean() - old.groupby("game").mean()).dropna()
    estimate = widen_interval_by_games(seeds, float(by_game.var(ddof=1)) / len(by_game))
    if not isfinite(estimate.low):
        return {}
    return {"low": estimate.low, "high": estimate.high, "interval": GAMES}


def _repeat_clone_for_seeds(returns: pd.Series, other: pd.Series) -> pd.Series:
    """A clone's returns for each seed of the other side; those of a policy with seeds as they are."""
    seeds = {
        side: returns.index.get_level_values("seed").unique() for side, returns in (("own", returns), ("other", other))
    }
    if [*seeds["own"]] != [WITHOUT_SEEDS]:
        return returns
    repeated: pd.Series = pd.concat({seed: returns.droplevel("seed") for seed in seeds["other"]}, names=["seed"])
    return repeated


def _iterate_variant_returns(episodes: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    """The variants with their targets: a return for each seed and episode."""
    for key, group in episodes.groupby(["variant", "target"], dropna=False, sort=False):
        variant, target = cast(tuple[str, float], key)
        yield (
            variant if isnan(target) else f"{variant} asked for {target:g}",
            group.set_index(["seed", "episode"])["total"],
        )


def _estimate_return_difference(old: pd.Series, new: pd.Series, same: bool) -> dict[str, Any]:
    """Means and the difference over the episodes of both; nothing if there are none."""
    both = old.index.intersection(new.index)
    if both.empty:
        return {}
    before, after = (returns.loc[both].groupby("seed").mean() for returns in (old, new))
    estimate = estimate_mean_over_seeds((after - before).to_numpy())
    low, high = (None, None) if not isfinite(estimate.low) else (estimate.low, estimate.high)
    if same:
        low = high = 0.0
    return {
        "a": float(before.mean()),
        "b": float(after.mean()),
        "difference": estimate.mean,
        "low": low,
        "high": high,
        "interval": SAME if same else SEEDS,
        "seeds": len(before),
        "episodes": len(both) // len(before),
    }
