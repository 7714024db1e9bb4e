"""The policies that an environment's data sets are recorded with: PPO's, on its way from random to expert.

They are chosen by evaluation return, not by step, and act as PPO did: by chance. `out` gets a folder for each (random, medium,
expert), the evaluations, the episodes of the first steps of training (replay), and between which returns scores are measured.
A run that is killed starts afresh: the state of a simulator cannot be saved.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pydantic import Field

from tasks import artifacts, recordings, saved, schemas, simulators
from tasks.algorithms.estimates import bootstrap
from tasks.algorithms.offline.actors import Behaviour, Sampled, Tanh
from tasks.algorithms.offline.adam import Adam
from tasks.algorithms.offline.behaviour import Settings, fit
from tasks.behaviours import EXPERT, MEDIUM, RANDOM, REFERENCE, REPLAY
from tasks.collecting import Collector
from tasks.episodes import Episode
from tasks.playing import as_player, play
from tasks.recordings import Reference
from tasks.stage import Config, Metrics, main
from tasks.tracking import track

CHOSEN_BY, MEASURED_BY = 1_000_000, 2_000_000  # seeds of episodes: those that choose a policy would flatter it


class Training(Config):
    """PPO's way in one environment; without steps there is a random policy only."""

    steps: int = Field(ge=0)  # in the environment
    replay: int = Field(ge=0)  # of them, the first ones, kept as a data set
    medium: float = Field(gt=0, lt=1)  # where between the random and the best policy's return the medium one's lies
    evaluate_every: int = Field(ge=1)  # updates
    learning_rate: float = Field(gt=0)
    gamma: float = Field(ge=0, le=1)
    entropy: float = Field(ge=0)  # weight of the bonus


class BehaviourConfig(Config):
    """PPO, alike in all environments but for what they say themselves."""

    environments: dict[str, Training] = Field(
        json_schema_extra={"propertyNames": {"environmentOr": list(simulators.OWN)}}
    )  # Gymnasium's or our own; the command line looks before anything runs
    seed: int = Field(ge=0)
    copies: int = Field(ge=1)  # of the environment, side by side
    horizon: int = Field(ge=1)  # steps of each for one update
    hidden: list[int]
    lam: float = Field(ge=0, le=1)
    clip: float = Field(gt=0)
    epochs: int = Field(ge=1)
    minibatches: int = Field(ge=1)
    max_gradient: float = Field(gt=0)
    evaluate_episodes: int = Field(ge=2)
    measure_episodes: int = Field(ge=2)  # of each policy that was chosen


@dataclass(frozen=True)
class Checkpoint:
    """A policy of the way, the steps that it had been trained for, and the mean return that speaks for it."""

    steps: int
    value: float
    policy: Behaviour


def run(config: BehaviourConfig, out: Path) -> Metrics:
    """Train in the environment that `out` is named like, and keep what its data sets need; metrics: each policy's return."""
    environment = out.name
    out.mkdir(parents=True, exist_ok=True)
    training = config.environments[environment]
    torch.manual_seed(config.seed)
    policy = Behaviour(simulators.spaces_of(environment), config.hidden)
    first = Checkpoint(0, _play(environment, policy, config.evaluate_episodes, CHOSEN_BY).mean(), deepcopy(policy))
    chosen, checkpoints, replay = {RANDOM: first}, [first], list[Episode]()
    if training.steps:
        collector = Collector(environment, config.copies, config.seed, training.replay)
        updates = max(1, training.steps // (config.copies * config.horizon))
        rows = track(_train(config, training, environment, policy, collector, checkpoints, updates), updates)
        collector.close()
        chosen, replay = chosen | choose(environment, training.medium, checkpoints), collector.replay
        artifacts.write_curves(rows, out / "curve.csv")
    _write_evaluations(checkpoints, out / "evaluations.csv")
    returns = {
        tier: _play(environment, one.policy, config.measure_episodes, MEASURED_BY) for tier, one in chosen.items()
    }
    artifacts.write(schemas.Measured, _table(returns), out / "measured.parquet")
    reference = reference_of(environment, {tier: float(values.mean()) for tier, values in returns.items()})
    (out / REFERENCE).write_text(json.dumps(asdict(reference), indent=2) + "\n")
    for tier, checkpoint in chosen.items():
        saved.save(checkpoint.policy, out / tier)
    if replay:
        recordings.write(out / REPLAY, environment, replay, reference, {"source": REPLAY, "seed": config.seed})
    estimates = {tier: asdict(bootstrap(values, config.seed, 1000)) for tier, values in returns.items()}
    return {tier: {"steps": chosen[tier].steps, **estimate} for tier, estimate in estimates.items()}


def _train(
    config: BehaviourConfig,
    training: Training,
    environment: str,
    policy: Behaviour,
    collector: Collector,
    checkpoints: list[Checkpoint],
    updates: int,
) -> Iterator[dict[str, float]]:
    """PPO's metrics, update by update; what was evaluated on the way is added to `checkpoints`."""
    critic = Tanh(policy.spaces, config.hidden, 1, gain=1.0)
    optimizer = Adam([*policy.parameters(), *critic.parameters()], training.learning_rate, clip=config.max_gradient)
    generator = torch.Generator().manual_seed(config.seed)
    settings = Settings(
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
            value = _play(environment, policy, config.evaluate_episodes, CHOSEN_BY).mean()
            checkpoints.append(Checkpoint(update * config.copies * config.horizon, value, deepcopy(policy)))
        yield {name: metric.item() for name, metric in metrics.items()}


def choose(environment: str, medium: float, checkpoints: Sequence[Checkpoint]) -> dict[str, Checkpoint]:
    """The best one, and of those before it the one nearest to the share `medium` of the way there from the first."""
    best = max(range(len(checkpoints)), key=lambda number: checkpoints[number].value)
    before = checkpoints[1:best]
    if not before:
        raise SystemExit(
            f"behaviour.environments.{environment}: no policy was between the random one and the best one "
            f"(returns {', '.join(f'{checkpoint.value:.1f}' for checkpoint in checkpoints[:8])}, ..): more steps, or evaluate more often"
        )
    wanted = checkpoints[0].value + medium * (checkpoints[best].value - checkpoints[0].value)
    return {
        MEDIUM: min(before, key=lambda checkpoint: abs(checkpoint.value - wanted)),
        EXPERT: checkpoints[best],
    }


def reference_of(environment: str, returns: Mapping[str, float]) -> Reference:
    """From the random policy's return to the optimum where it is known, else to the expert's, else to D4RL's maximum."""
    known, d4rl = simulators.OPTIMA.get(environment), recordings.d4rl_reference(environment)
    maximum = known if known is not None else returns.get(EXPERT, d4rl.maximum if d4rl else None)
    if maximum is None:
        raise SystemExit(
            f"behaviour.environments.{environment}: steps is 0, but what a good return is can only be learned by training here"
        )
    if maximum <= returns[RANDOM]:
        raise SystemExit(
            f"behaviour.environments.{environment}: the best policy's return {maximum:.1f} is not above the random one's "
            f"{returns[RANDOM]:.1f}: more steps"
        )
    return Reference(returns[RANDOM], maximum)


def _play(environment: str, policy: Behaviour, episodes: int, seed: int) -> NDArray[np.float64]:
    """The returns of whole episodes, played by chance."""
    return play(environment, as_player(Sampled(policy, seed)), episodes, seed).returns


def _write_evaluations(checkpoints: Sequence[Checkpoint], path: Path) -> None:
    rows = [{"step": checkpoint.steps, "return": checkpoint.value} for checkpoint in checkpoints]
    pd.DataFrame(rows).to_csv(path, index=False)


def _table(returns: Mapping[str, NDArray[np.float64]]) -> pd.DataFrame:
    tables = [
        pd.DataFrame({"policy": tier, "episode": range(len(values)), "total": values})
        for tier, values in returns.items()
    ]
    return pd.concat(tables)


if __name__ == "__main__":
    main(run)
