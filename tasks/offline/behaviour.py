"""The policies that an environment's data sets are recorded with: PPO's, on its way from random to expert.

They are chosen by evaluation return, not by step, and draw their actions at random, as in PPO. Every policy on the way
is evaluated in some episodes: the first look. The best of these are evaluated in more and other episodes: the second
look, which chooses, since the best of many short evaluations is the luckiest. The return of a chosen policy is measured
in yet other episodes. `out` gets a folder for each chosen policy (random, medium, expert), the evaluations, all whole
episodes of training up to the medium policy (replay), and the two returns that scores are measured between, as far as
they are known. A run that is killed starts afresh: the state of a simulator cannot be saved.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from tasks.algorithms.offline import behaviour
from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.behaviour import BehaviourSettings, fit
from tasks.algorithms.offline.networks.actors import Behaviour, Sampled, Tanh
from tasks.common import tables
from tasks.common.errors import DataError
from tasks.common.estimates import bootstrap_mean
from tasks.common.tracking import run_and_record_training
from tasks.offline.configs.behaviour import BehaviourConfig, BehaviourTraining
from tasks.offline.datasets import dataset_files
from tasks.offline.datasets.episodes import Episode
from tasks.offline.datasets.normalized_score import ScoreReference
from tasks.offline.datasets.tables import BehaviourReturns
from tasks.offline.environments import saved_environments, simulators
from tasks.offline.environments.rollouts import play_seeded_episodes, wrap_as_player
from tasks.offline.policies import files
from tasks.offline.policies.behaviour_folder import EXPERT, MEDIUM, RANDOM, REFERENCE, REPLAY
from tasks.offline.training.on_policy import VectorCollector
from tasks.stage import Metrics, main

FIRST_LOOK, SECOND_LOOK, MEASURED_BY = (
    1_000_000,
    1_500_000,
    2_000_000,
)  # seeds: different ones, since a policy is flattered by the episodes that choose it
CURVES = {
    **behaviour.METRICS,
    "return": "The mean return of the first look at a policy on the way (evaluations.csv).",
}
METRICS = {
    "TIER/steps": "The steps in the environment that the policy was trained for.",
    "TIER/chosen_at": "The mean return of the second look, by which it was chosen; this choice makes "
    "it a little too high.",
    "TIER/ESTIMATE": "The mean return of other episodes than those that chose it.",
}


@dataclass(frozen=True)
class Checkpoint:
    """A policy on the way, the steps that it had been trained for, and the mean return of the last look at it."""

    steps: int
    value: float
    policy: Behaviour


def run(config: BehaviourConfig, environment_files: Path, out: Path) -> Metrics:
    """Train in the environment that `out` is named like, and keep what its data sets need.

    `environment_files` hold environments that are named by a folder.
    """
    training = config.environments[out.name]
    environment = training.id or out.name
    torch.manual_seed(config.seed)
    policy = Behaviour(simulators.get_policy_spaces(environment), config.hidden)
    out.mkdir(parents=True, exist_ok=True)
    saved_environments.copy_environment_file(environment, out)
    checkpoints = [_evaluate_checkpoint(environment, policy, 0, config)]
    replay = list[Episode]()

    @cache
    def again(checkpoint: Checkpoint) -> Checkpoint:
        returns = _measure_returns(environment, checkpoint.policy, config.final_episodes, SECOND_LOOK)
        return replace(checkpoint, value=float(returns.mean()))

    if training.steps:
        collector = VectorCollector(environment, config.copies, config.seed)
        updates = max(1, training.steps // (config.copies * config.horizon))
        rows = run_and_record_training(
            _train_ppo(config, training, environment, policy, collector, checkpoints, updates), updates
        )
        collector.close()
        chosen = select_tier_checkpoints(out.name, training.medium, config.finalists, checkpoints, again)
        replay = collector.list_episodes_ended_by(chosen[MEDIUM].steps)
        tables.write_curves(rows, out / "curve.csv")
    else:
        chosen = {RANDOM: again(checkpoints[0])}
    _write_evaluations(checkpoints, out / "evaluations.csv")
    returns = {
        tier: _measure_returns(environment, tier_checkpoint.policy, config.measure_episodes, MEASURED_BY)
        for tier, tier_checkpoint in chosen.items()
    }
    tables.write_table(BehaviourReturns, _build_returns_table(returns), out / "measured.parquet")
    reference = compute_score_reference(
        out.name, environment, {tier: float(values.mean()) for tier, values in returns.items()}
    )
    ends = {} if reference is None else asdict(reference)
    (out / REFERENCE).write_text(json.dumps({"environment": environment, **ends}, indent=2) + "\n")
    for tier, checkpoint in chosen.items():
        files.save_policy(checkpoint.policy, out / tier)
    if replay and reference is not None:
        dataset_files.write_offline_dataset(
            out / REPLAY, environment, replay, reference, {"source": REPLAY, "seed": config.seed}
        )
    return {
        tier: {
            "steps": tier_checkpoint.steps,
            "chosen_at": tier_checkpoint.value,
            **asdict(bootstrap_mean(returns[tier], config.seed, 1000)),
        }
        for tier, tier_checkpoint in chosen.items()
    }


def _train_ppo(
    config: BehaviourConfig,
    training: BehaviourTraining,
    environment: str,
    policy: Behaviour,
    collector: VectorCollector,
    checkpoints: list[Checkpoint],
    updates: int,
) -> Iterator[dict[str, float]]:
    """PPO's metrics, update by update; what was evaluated on the way is added to `checkpoints`."""
    critic = Tanh(policy.spaces, config.hidden, 1, gain=1.0)
    optimizer = Adam([*policy.parameters(), *critic.parameters()], training.learning_rate, clip=config.max_gradient)
    generator = torch.Generator().manual_seed(config.seed)
    settings = BehaviourSettings(
        updates=updates,
        learning_rate=training.learning_rate,
        gamma=training.gamma,
        lam=config.lam,
        clip=config.clip,
        epochs=config.epochs,
        minibatches=config.minibatches,
        entropy=training.entropy,
    )
    steps = fit(
        policy, critic, optimizer, lambda: collector.collect(policy, config.horizon, generator), settings, generator
    )
    for update, metrics in enumerate(steps, start=1):
        if update % training.evaluate_every == 0 or update == updates:
            checkpoints.append(
                _evaluate_checkpoint(environment, policy, update * config.copies * config.horizon, config)
            )
        yield {name: metric.item() for name, metric in metrics.items()}


def _evaluate_checkpoint(environment: str, policy: Behaviour, steps: int, config: BehaviourConfig) -> Checkpoint:
    """The current policy, with the first look at it."""
    value = _measure_returns(environment, policy, config.evaluate_episodes, FIRST_LOOK).mean()
    return Checkpoint(steps, float(value), deepcopy(policy))


def select_tier_checkpoints(
    name: str,
    medium: float,
    finalists: int,
    checkpoints: Sequence[Checkpoint],
    again: Callable[[Checkpoint], Checkpoint],
) -> dict[str, Checkpoint]:
    """The first policy, the best one, and the one between them that is nearest to the share `medium` of the way to the
    best.

    For the latter two the first look only names `finalists` policies; the second look (`again`) decides among them.
    """
    contenders = sorted(range(len(checkpoints)), key=lambda number: -checkpoints[number].value)[:finalists]
    best = max(sorted(contenders), key=lambda number: again(checkpoints[number]).value)
    between = checkpoints[1:best]
    if not between:
        raise DataError(
            f"branches.behaviour.{name}: no policy was between the random one and the best one "
            f"(returns {', '.join(f'{checkpoint.value:.1f}' for checkpoint in checkpoints[:8])}, ..): more steps, "
            "or evaluate more often; "
            "or steps: 0 and what scores are measured between in transitions.references, where data are imported"
        )
    random = again(checkpoints[0])
    expert = again(checkpoints[best])
    wanted = random.value + medium * (expert.value - random.value)

    def distance(checkpoint: Checkpoint) -> float:
        return abs(checkpoint.value - wanted)

    near = sorted(between, key=distance)[:finalists]
    return {RANDOM: random, MEDIUM: min(map(again, near), key=distance), EXPERT: expert}


def compute_score_reference(name: str, environment: str, returns: Mapping[str, float]) -> ScoreReference | None:
    """From the random policy's return to the optimum where it is known, else to the expert's, else to D4RL's maximum;
    None without any.
    """
    optimum = simulators.find_best_possible_return(environment)
    maximum = (
        optimum if optimum is not None else returns.get(EXPERT, dataset_files.find_known_maximum_return(environment))
    )
    if maximum is None:
        return None
    if maximum <= returns[RANDOM]:
        raise DataError(
            f"branches.behaviour.{name}: the best policy's return {maximum:.1f} is not above the random one's "
            f"{returns[RANDOM]:.1f}: more steps"
        )
    return ScoreReference(returns[RANDOM], maximum)


def _measure_returns(environment: str, policy: Behaviour, episodes: int, seed: int) -> NDArray[np.float64]:
    """The returns of whole episodes, played with random actions."""
    return play_seeded_episodes(environment, wrap_as_player(Sampled(policy, seed)), episodes, seed).returns


def _write_evaluations(checkpoints: Sequence[Checkpoint], path: Path) -> None:
    rows = [{"step": checkpoint.steps, "return": checkpoint.value} for checkpoint in checkpoints]
    pd.DataFrame(rows).to_csv(path, index=False)


def _build_returns_table(returns: Mapping[str, NDArray[np.float64]]) -> pd.DataFrame:
    frames = [
        pd.DataFrame({"policy": tier, "episode": range(len(values)), "total": values})
        for tier, values in returns.items()
    ]
    return pd.concat(frames)


if __name__ == "__main__":
    main(run)
