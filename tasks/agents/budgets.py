"""What money buys: one clone trained further on demonstrations, a larger model's play, own successes, comparisons, or
rewards.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from tasks.agents.configs.budgets import BudgetsConfig
from tasks.agents.playing import episode_files, playing, purchases
from tasks.agents.playing.collecting import GameCollector
from tasks.agents.playing.episode_files import World
from tasks.agents.playing.purchases import Bought
from tasks.algorithms.agents import actor_critic, preference
from tasks.algorithms.agents.experience import LoopSettings
from tasks.algorithms.agents.preference import EpisodePair
from tasks.algorithms.agents.transcripts import Transcript, make_transcripts
from tasks.algorithms.agents.trust_region import TrustRegion
from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
from tasks.algorithms.language import sft
from tasks.algorithms.language.sequences import count_batches, iterate_shuffled_batches
from tasks.common import models
from tasks.common.checkpoints import ResumableTraining, open_resumable_training
from tasks.common.config import build_settings
from tasks.common.errors import ConfigError
from tasks.common.tracking import Row, show_progress_as_part
from tasks.language.training import trained_model
from tasks.stage import Metrics, main

WITH_A_CRITIC = ("step_share", "loss/value", "val/explained_variance")  # or with a trust region: neither is here
CURVES = {
    **{name: text for name, text in actor_critic.METRICS.items() if name not in WITH_A_CRITIC},
    **playing.METRICS,
    **sft.METRICS,
    **preference.METRICS,
    "loss": "What is minimised: the negative log-likelihood of what is imitated, DPO's loss of comparisons, or the "
    "policy gradient's with rewards.",
}
METRICS = {
    "spent": "The mean over seeds of the dollars spent.",
    "number": "The mean over seeds of what was bought: demonstrations, the teacher's episodes, rated episodes, or "
    "comparisons.",
    "steps": "The mean over seeds of the gradient steps; with rewards of the batches of episodes.",
}
PURCHASES = "bought.json"
CURVE = "curve.csv"
NO_REGION = TrustRegion(radius=1.0, iterations=1, damping=0.0, halvings=0)


def run(
    config: BudgetsConfig, policy: Path, teacher: Path, episodes: Path, environment_files: Path, out: Path
) -> Metrics:
    """Train the policy whose name `out` ends with, from the clone in `policy`, in the environment of `episodes`; one
    for each seed.

    `teacher` is the folder of the other model, `environment_files` are those of the user's environments.
    """
    budget = config.policies[out.name]
    world = episode_files.read_world(episodes)
    paid = list[dict[str, float]]()
    curves = list[dict[str, object]]()
    with ExitStack() as trainings:  # checkpoints of seeds that are done stay until all are
        for number, seed in enumerate(config.seeds):
            inputs = (policy, teacher, episodes / episode_files.ENVIRONMENT, environment_files)
            training = trainings.enter_context(open_resumable_training(f"budgets-{out.name}-{seed}", config, *inputs))
            with show_progress_as_part(number, len(config.seeds)):
                learner = _Learner(config, out.name, world, seed, policy)
                purchase, rows = learner.train(training, teacher, out / f"seed-{seed}")
            paid.append(purchase)
            curves += [{"seed": seed, "step": step, **row} for step, row in enumerate(rows, start=1)]
    frame = pd.DataFrame(curves, columns=None if curves else ["seed", "step"])
    frame.to_csv(out / CURVE, index=False)
    means = {name: float(pd.Series([row[name] for row in paid]).mean()) for name in METRICS}
    (out / PURCHASES).write_text(
        json.dumps({"source": budget.source, "dollars": budget.dollars, **means}, indent=2) + "\n"
    )
    return means


class _Learner:
    """One seed's policy on its way from the clone."""

    def __init__(self, config: BudgetsConfig, name: str, world: World, seed: int, policy: Path) -> None:
        torch.manual_seed(seed)
        self.config = config
        self.name = name
        self.budget = config.policies[name]
        self.world = world
        self.seed = seed
        self.trained = trained_model.load_trainable_model(policy, config.training)
        self.tokenizer = models.load_tokenizer(policy)
        how = playing.build_action_sampling(
            self.trained.model, self.tokenizer, config.max_action_tokens, config.temperature
        )
        self.collect = GameCollector(
            self.trained.model, self.tokenizer, world, seed, config.games, config.episodes, how
        )

    def train(self, training: ResumableTraining, teacher: Path, out: Path) -> tuple[dict[str, float], list[Row]]:
        """Buy and learn; the policy goes to `out`. What was paid and done, and the curve."""
        prices = self.config.prices
        if self.budget.source == "rewards":
            price = self.config.games * self.config.episodes * prices.reward
            steps = int(self.budget.dollars / price)
            self._check_affordable(steps, "batch of rated episodes")
            paid = {"spent": steps * price, "number": float(steps * self.config.games * self.config.episodes)}
            optimizer = self._make_optimizer(steps * self.config.epochs)
            fit = partial(self._fit_rewards, optimizer, steps)
        else:
            bought = self._buy_training_data(teacher)
            self._check_affordable(bought.number, "purchase")
            paid = {"spent": bought.spent, "number": float(bought.number)}
            learned = len(bought.pairs) or len(bought.episodes)  # nothing where all comparisons were ties
            steps = count_batches(learned, self.config.batch_size, self.config.epochs) if learned else 0
            optimizer = self._make_optimizer(max(1, steps))
            fit = partial(self._fit_imitation, bought.episodes, optimizer)
            if bought.pairs:
                pad = self.tokenizer.pad_token_id
                reference = preference.compute_episode_reference_logps(
                    self.trained.model, bought.pairs, pad, self.config.batch_size
                )
                fit = partial(self._fit_preferences, bought.pairs, reference, optimizer)
        rows = list[Row]()
        if steps:
            rows = training.run(fit, {"policy": self.trained.weights, "optimizer": optimizer}, steps, ended=True)
        self.trained.save(self.tokenizer, out)
        return {**paid, "steps": float(steps)}, rows

    def _buy_training_data(self, teacher: Path) -> Bought:
        config = self.config
        budget = self.budget
        prices = self.config.prices
        if budget.source == "demonstrations":
            return purchases.buy_demonstrations(
                self.world, self.tokenizer, self.seed, budget.dollars, prices.demonstration
            )
        if budget.source == "teacher":
            model = models.load_model(teacher)
            words = models.load_tokenizer(teacher)
            greedy = playing.build_action_sampling(model, words, config.max_action_tokens, 0.0)
            plays = GameCollector(model, words, self.world, self.seed, config.games * config.episodes, 1, greedy)
            return purchases.buy_teacher_episodes(plays, self.tokenizer, budget.dollars, prices.teacher)
        if budget.source == "successes":
            return purchases.buy_successful_episodes(self.collect, budget.dollars, prices.reward)
        return purchases.buy_comparisons(self.collect, budget.dollars, prices.comparison)

    def _check_affordable(self, number: int, what: str) -> None:
        if not number:
            raise ConfigError(
                f"params.yaml: branches.budgets.{self.name}.dollars: expected enough for one {what}, got "
                f"{self.budget.dollars:g}"
            )

    def _make_optimizer(self, steps: int) -> Optimizer:
        settings = build_settings(self.config.training, OptimizerSettings)
        return Optimizer(self.trained.model, self.budget.learning_rate, steps, self.config.clip, settings)

    def _iterate_batch_rows(self, count: int, start: int) -> Iterator[list[int]]:
        """The rows of each batch, from a step on."""
        generator = torch.Generator().manual_seed(self.seed)
        for step, rows in enumerate(
            iterate_shuffled_batches(count, self.config.batch_size, self.config.epochs, generator)
        ):
            if step >= start:
                yield [*rows]

    def _fit_imitation(self, episodes: Sequence[Transcript], optimizer: Optimizer, start: int) -> Iterator[Row]:
        pad = self.tokenizer.pad_token_id
        rows = self._iterate_batch_rows(len(episodes), start)
        batches = (make_transcripts([episodes[row] for row in batch_rows], pad).batch() for batch_rows in rows)
        return sft.fit(self.trained.model, batches, optimizer)

    def _fit_preferences(
        self, pairs: Sequence[EpisodePair], reference: Tensor, optimizer: Optimizer, start: int
    ) -> Iterator[Row]:
        rows = self._iterate_batch_rows(len(pairs), start)
        batches = (([pairs[row] for row in batch_rows], reference[batch_rows]) for batch_rows in rows)
        return preference.fit(self.trained.model, batches, self.tokenizer.pad_token_id, self.config.beta, optimizer)

    def _fit_rewards(self, optimizer: Optimizer, steps: int, start: int) -> Iterator[Row]:
        return actor_critic.fit(
            self.trained.model,
            None,
            self.collect,
            (optimizer, None),
            self._build_grpo_settings(),
            start=start,
            steps=steps,
        )

    def _build_grpo_settings(self) -> LoopSettings:
        """GRPO by episode."""
        return LoopSettings(
            credit="total",
            over="turns",
            baseline="group",
            standardized=True,
            gamma=1.0,
            lam=1.0,
            update="clip",
            clip_ratio=self.config.clip_ratio,
            epochs=self.config.epochs,
            minibatches=1,
            critic_updates=1,
            temperature=self.config.temperature,
            region=NO_REGION,
            micro_batch=self.config.batch_size,
            seed=self.seed,
        )


if __name__ == "__main__":
    main(run)
