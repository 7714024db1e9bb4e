"""Agents trained by the rewards of their own episodes: REINFORCE, actor-critics, PPO, GRPO and TRPO, by the settings of
a policy.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pandas as pd
import torch

from tasks.agents.configs.agents import AgentConfig, AgentsConfig
from tasks.agents.playing import episode_files, playing
from tasks.agents.playing.collecting import GameCollector
from tasks.agents.playing.episode_files import World
from tasks.algorithms.agents import actor_critic
from tasks.algorithms.agents.critic import TurnCritic
from tasks.algorithms.agents.experience import LoopSettings
from tasks.algorithms.agents.trust_region import TrustRegion
from tasks.algorithms.common.optimizer import METRICS as OPTIMIZER_METRICS
from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
from tasks.algorithms.common.precision import TrainedWeights
from tasks.common import models, tables
from tasks.common.checkpoints import ResumableTraining, Stateful, open_resumable_training
from tasks.common.config import build_settings
from tasks.common.tracking import Row, show_progress_as_part
from tasks.language.training import trained_model
from tasks.stage import Metrics, main

CURVES = METRICS = {**actor_critic.METRICS, **OPTIMIZER_METRICS, **playing.METRICS}


def run(config: AgentsConfig, policy: Path, episodes: Path, environment_files: Path, out: Path) -> Metrics:
    """Train the policy whose name `out` ends with, from the clone in `policy`, in the environment of `episodes`; one
    for each seed.

    `environment_files` are those of the user's environments.
    """
    agent_config = config.policies[out.name]
    world = episode_files.read_world(episodes)
    curves = list[list[Row]]()
    with ExitStack() as trainings:  # checkpoints of seeds that are done stay until all are
        for number, seed in enumerate(config.seeds):
            training = trainings.enter_context(
                open_resumable_training(
                    f"agents-{out.name}-{seed}", config, policy, episodes / episode_files.ENVIRONMENT, environment_files
                )
            )
            with show_progress_as_part(number, len(config.seeds)):
                curves.append(_train_seed(training, config, agent_config, world, seed, policy, out / f"seed-{seed}"))
        curves = playing.fill_missing_counts(curves)
        steps = [
            {"seed": seed, "step": step, **row}
            for seed, rows in zip(config.seeds, curves, strict=True)
            for step, row in enumerate(rows, start=1)
        ]
        pd.DataFrame(steps).to_csv(out / "curves.csv", index=False)
    return tables.compute_mean_row([tables.compute_final_metrics(rows) for rows in curves])


def _train_seed(
    training: ResumableTraining,
    config: AgentsConfig,
    agent_config: AgentConfig,
    world: World,
    seed: int,
    policy: Path,
    out: Path,
) -> list[Row]:
    """One seed: its curve; the policy goes to `out`."""
    torch.manual_seed(seed)
    trained = trained_model.load_trainable_model(policy, config.training)
    tokenizer = models.load_tokenizer(policy)
    settings = build_loop_settings(config, agent_config, seed)
    optimizing = build_settings(config.training, OptimizerSettings)
    updates = config.steps * (config.epochs * config.minibatches if agent_config.update == "clip" else 1)
    optimizer = Optimizer(trained.model, agent_config.learning_rate, updates, config.clip, optimizing)
    state: dict[str, Stateful] = {"policy": trained.weights, "optimizer": optimizer}
    critic = critic_optimizer = None
    if settings.needs_critic:
        critic = TurnCritic(trained.model)
        steps = updates if agent_config.update == "clip" else config.steps * config.critic_updates
        critic_optimizer = Optimizer(critic, config.critic_learning_rate, steps, config.clip, optimizing)
        state |= {"critic": TrainedWeights(critic), "critic_optimizer": critic_optimizer}
    how = playing.build_action_sampling(trained.model, tokenizer, config.max_action_tokens, config.temperature)

    collect = GameCollector(trained.model, tokenizer, world, seed, config.games, config.episodes, how)

    def fit(start: int) -> Iterator[Row]:
        return actor_critic.fit(
            trained.model, critic, collect, (optimizer, critic_optimizer), settings, start=start, steps=config.steps
        )

    rows = training.run(fit, state, config.steps, ended=True)
    trained.save(tokenizer, out)
    return rows


def build_loop_settings(config: AgentsConfig, agent_config: AgentConfig, seed: int) -> LoopSettings:
    """What the loop needs to know of a policy and of what all share."""
    return LoopSettings(
        credit=agent_config.credit,
        over=agent_config.over,
        baseline=agent_config.baseline,
        standardized=agent_config.standardized,
        gamma=config.gamma,
        lam=agent_config.lam,
        update=agent_config.update,
        clip_ratio=config.clip_ratio,
        epochs=config.epochs,
        minibatches=config.minibatches,
        critic_updates=config.critic_updates,
        temperature=config.temperature,
        region=build_settings(config, TrustRegion),
        micro_batch=config.micro_batch,
        seed=seed,
    )


if __name__ == "__main__":
    main(run)
