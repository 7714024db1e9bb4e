"""What the policies of one method, trained on one data set, really earn: whole episodes of every variant and seed.

A policy that can be asked for a return is played with each of its targets. What Q-values claim and what fitted-Q
evaluation estimates from the data alone stand beside the discounted return that was reached, the policy that recorded
the data is played greedily in the same episodes, and the best policy is filmed.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import copyfile
from typing import TypedDict

import numpy as np
import pandas as pd

from tasks.algorithms.offline import fitted_q
from tasks.common import models, tables
from tasks.common.config import Seed
from tasks.common.tracking import iterate_with_progress
from tasks.offline.configs.returns import ReturnsConfig
from tasks.offline.datasets import normalized_score
from tasks.offline.datasets.dataset_files import StoredDataset, read_offline_dataset
from tasks.offline.datasets.normalized_score import ScoreReference
from tasks.offline.environments import rendering
from tasks.offline.environments.discrete import GRAPH
from tasks.offline.environments.rollouts import EpisodeOutcomes, Player, Targeted, play_seeded_episodes, wrap_as_player
from tasks.offline.policies import behaviour_folder, files, kinds
from tasks.offline.reporting import measurements, value_estimates
from tasks.offline.reporting.measurements import Description, Ends, Greedy, Picture, Trained
from tasks.offline.reporting.tables import CLAIMED, EPISODES, FITTED, STARTS, VALUES, PlayedEpisodes, Starts, Values
from tasks.stage import Metrics, main

CURVES = fitted_q.METRICS
METRICS = {
    "VARIANT/return": "The mean return of whole episodes, over all seeds, in the environment's own units.",
    "VARIANT/length": "The mean length of these episodes in steps.",
    "VARIANT/unlimited": "The share of these episodes that were cut off after 1,000 steps, since the environment "
    "has no limit of its own, from 0 to 1.",
    "VARIANT/score": f"The mean return as a score: {normalized_score.SCALE}.",
    "VARIANT/d4rl_score": "The same with D4RL's reference returns, for environments that D4RL has.",
}


class Key(TypedDict):
    """What a line's rows are found by."""

    variant: str
    seed: int
    target: float  # NaN: cannot be asked


@dataclass(frozen=True)
class EvaluatedPolicy:
    """One trained policy with one target, and what it did."""

    variant: str
    seed: Seed
    target: float  # NaN: cannot be asked
    policy: kinds.Policy
    player: Player
    played: EpisodeOutcomes

    @property
    def key(self) -> Key:
        """What its rows are found by."""
        return {"variant": self.variant, "seed": self.seed, "target": self.target}


def run(config: ReturnsConfig, policies: Path, transitions: Path, out: Path) -> Metrics:
    """Measure all policies that `policies` has curves of, trained on `transitions`."""
    dataset = read_offline_dataset(transitions)
    dataset = replace(dataset, transitions=dataset.transitions.to(models.choose_device()))
    curves = pd.read_csv(policies / measurements.CURVES)
    variant_seeds = list(dict.fromkeys(zip(curves["variant"], curves["seed"], strict=True)))
    lines = [
        line
        for variant_seed in iterate_with_progress(variant_seeds, len(variant_seeds))
        for line in _iterate_policy_evaluations(config, dataset.environment, policies, *variant_seed)
    ]
    tables.write_table(PlayedEpisodes, _build_episode_table(lines), out / EPISODES)
    values, fits = _estimate_values(config, dataset, lines)
    tables.write_table(Values, values, out / VALUES)
    fits.to_csv(out / measurements.FITS, index=False)
    tables.write_table(Starts, _build_graph_start_table(dataset, lines), out / STARTS)
    for name in (measurements.CURVES, measurements.PROGRESS):
        copyfile(policies / name, out / name)
    picture = _write_median_episode_gif(config, dataset, lines, out / measurements.PICTURE)
    described: Description = {
        **_describe_trained_policies(policies, dataset, lines, curves),
        "behaviour": _find_best_behaviour_policy(config, dataset, transitions),
        "picture": picture,
    }
    (out / measurements.DESCRIPTION).write_text(json.dumps(described, indent=2) + "\n")
    return _compute_metrics(dataset, lines)


def _iterate_policy_evaluations(
    config: ReturnsConfig, environment: str, policies: Path, variant: str, seed: int
) -> Iterator[EvaluatedPolicy]:
    """One policy, played with each of its targets."""
    policy = kinds.load_policy_of_any_kind(policies / variant / f"seed-{seed}").to(models.choose_device())
    players: dict[float, Player] = {}
    if isinstance(policy, Targeted):
        players = {target: policy.with_target(target) for target in policy.targets}
    for target, player in (players or {float("nan"): wrap_as_player(policy)}).items():
        played = play_seeded_episodes(environment, player, config.episodes, config.seed)
        yield EvaluatedPolicy(variant, seed, target, policy, player, played)


def _build_episode_table(lines: list[EvaluatedPolicy]) -> pd.DataFrame:
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "episode": range(len(line.played.rewards)),
                    "total": line.played.returns,
                    "length": line.played.lengths,
                }
            ).assign(**line.key)
            for line in lines
        ],
        ignore_index=True,
    )


def _estimate_values(
    config: ReturnsConfig, dataset: StoredDataset, lines: list[EvaluatedPolicy]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Estimates for memoryless policies only, since the others' actions depend on more than a state; and the fits'
    curves.
    """
    rows = list[dict[str, object]]()
    curves = list[dict[str, object]]()
    memoryless = [(line, line.policy) for line in lines if not isinstance(line.policy, Targeted)]
    fits = _run_fitted_q_by_seed(config, dataset, memoryless)
    for line, policy in memoryless:
        whose = {"variant": line.variant, "seed": line.seed}
        gamma = getattr(policy, "gamma", config.gamma)
        truth = value_estimates.measure_true_return(dataset.environment, line.player, line.played, gamma, config.seed)
        key = {**whose, "gamma": gamma, "truth": truth.value, "cut": truth.cut}
        if files.has_value_estimates(policy):
            value = policy.values(line.played.initial.to(dataset.transitions.device)).mean().item()
            rows.append({**key, "source": CLAIMED, "value": value, "converged": True})
        if fit := fits.get((line.variant, line.seed)):
            rows.append({**key, "source": FITTED, "value": fit.value, "converged": fit.converged})
            curves += [{**whose, **row} for row in fit.curve]
    kinds = {column: kind.dtype.type for column, kind in Values.to_schema().columns.items()}
    values = pd.DataFrame(rows, columns=list(kinds)).astype(kinds)
    return values, pd.DataFrame(curves, columns=["variant", "seed", "step", "loss", "estimate"])


def _run_fitted_q_by_seed(
    config: ReturnsConfig,
    dataset: StoredDataset,
    memoryless: Sequence[tuple[EvaluatedPolicy, fitted_q.DeterministicPolicy]],
) -> dict[tuple[str, int], fitted_q.Fit]:
    """Fitted-Q evaluation of the first seeds of each variant, by variant and seed; those with one discount side by
    side.
    """
    seeds = Counter[str]()
    groups = dict[float, list[tuple[EvaluatedPolicy, fitted_q.DeterministicPolicy]]]()
    for line, policy in memoryless:
        seeds[line.variant] += 1
        if config.fitted_q.most_steps and seeds[line.variant] <= config.fitted_q.seeds:
            groups.setdefault(getattr(policy, "gamma", config.gamma), []).append((line, policy))
    fits_by_seed = dict[tuple[str, int], fitted_q.Fit]()
    for gamma, group in groups.items():
        lines = [line for line, _ in group]
        policies = [policy for _, policy in group]
        starts = lines[0].played.initial  # all are played from the same first states
        fits = value_estimates.run_fitted_q_evaluation(
            config.fitted_q, policies, [line.seed for line in lines], dataset, starts, gamma
        )
        fits_by_seed |= {(line.variant, line.seed): fit for line, fit in zip(lines, fits, strict=True)}
    return fits_by_seed


def _build_graph_start_table(dataset: StoredDataset, lines: list[EvaluatedPolicy]) -> pd.DataFrame:
    """Each start of the graph beside the shortest path and the best recorded walk; no rows for other environments."""
    frames = [pd.DataFrame(columns=["variant", "seed", "target", "start", "optimum", "recorded", "total"])]
    if dataset.environment == "graph":
        data = dataset.transitions
        whole = ~dataset.transitions.cut_early
        first = data.observations[data.starts[whole]].argmax(1)
        walks = pd.Series(data.returns[whole].double().cpu().numpy()).groupby(first.cpu().numpy()).max()
        for line in lines:
            starts = line.played.initial.argmax(1).numpy()
            total = pd.Series(line.played.returns).groupby(starts).mean()
            table = pd.DataFrame({"start": total.index, "total": total.to_numpy(), **line.key})
            table["optimum"] = -GRAPH.distances[table["start"]].astype(float)
            table["recorded"] = table["start"].map(walks).astype(float)
            frames.append(table)
    kinds = {
        "variant": str,
        "seed": int,
        "target": float,
        "start": int,
        "optimum": float,
        "recorded": float,
        "total": float,
    }
    return pd.concat(frames[1:] or frames, ignore_index=True).astype(kinds)


def _write_median_episode_gif(
    config: ReturnsConfig, dataset: StoredDataset, lines: list[EvaluatedPolicy], path: Path
) -> Picture:
    """The best policy's episode of median return, played once more alone; what it shows."""
    best = max(lines, key=lambda line: line.played.returns.mean())
    returns = best.played.returns
    episode = int(returns.argsort(kind="stable")[(len(returns) - 1) // 2])
    picture, played = rendering.render_episode_gif(dataset.environment, best.player, config.seed + episode)
    path.write_bytes(picture)
    return {
        "variant": best.variant,
        "seed": best.seed,
        "target": None if np.isnan(best.target) else best.target,
        "return": float(played.returns[0]),
        "steps": int(played.lengths[0]),
    }


def _describe_trained_policies(
    policies: Path, dataset: StoredDataset, lines: list[EvaluatedPolicy], curves: pd.DataFrame
) -> Trained:
    """Everything else that the report says of these policies and their data."""
    returns = dataset.transitions.returns.double()
    whole = returns[~dataset.transitions.cut_early]
    steps = curves.groupby("variant")["step"].max()
    trained = {line.variant: line.policy for line in lines}
    return {
        "method": policies.parent.name,
        "dataset": policies.name,
        "environment": dataset.environment,
        "reference": _convert_reference_to_dict(dataset.reference),
        "d4rl": _convert_reference_to_dict(dataset.d4rl) if dataset.d4rl else None,
        "data": {
            "episodes": len(returns),
            "transitions": len(dataset.transitions),
            "mean": whole.mean().item(),
            "best": whole.max().item(),
        },
        "cost": {
            variant: {"steps": int(steps[variant]), "parameters": sum(p.numel() for p in policy.parameters())}
            for variant, policy in trained.items()
        },
    }


def _convert_reference_to_dict(reference: ScoreReference) -> Ends:
    return {"minimum": reference.minimum, "maximum": reference.maximum}


def _find_best_behaviour_policy(config: ReturnsConfig, dataset: StoredDataset, transitions: Path) -> Greedy | None:
    """The best of the policies that recorded the data, played greedily: what there was before anything was learned from
    them.

    None for imported data, whose policies are not at hand, and for random play, which has no greedy action.
    """
    folder = transitions / behaviour_folder.RECORDERS
    mean_returns = {
        tier.name: float(
            play_seeded_episodes(
                dataset.environment,
                wrap_as_player(behaviour_folder.load_behaviour_policy(folder, tier.name)),
                config.episodes,
                config.seed,
            ).returns.mean()
        )
        for tier in sorted(folder.glob("*"))
    }
    best = max(mean_returns, key=lambda tier: mean_returns[tier], default=None)
    return None if best is None else {"policy": best, "return": mean_returns[best]}


def _compute_metrics(dataset: StoredDataset, lines: list[EvaluatedPolicy]) -> Metrics:
    """METRICS by variant, or by variant and target."""
    groups: dict[str, list[EpisodeOutcomes]] = {}
    for line in lines:
        name = line.variant if np.isnan(line.target) else f"{line.variant} asked for {line.target:g}"
        groups.setdefault(name, []).append(line.played)
    metrics = {}
    for name, all_played in groups.items():
        mean = float(np.mean([played.returns.mean() for played in all_played]))
        metrics[name] = {
            "return": mean,
            "length": float(np.mean([played.lengths.mean() for played in all_played])),
            "unlimited": float(np.mean([played.cut.mean() for played in all_played])),
            "score": dataset.reference.score(mean),
        }
        if dataset.d4rl:
            metrics[name]["d4rl_score"] = dataset.d4rl.score(mean)
    return metrics


if __name__ == "__main__":
    main(run)
