"""Reward models on solutions: of answers that are right or wrong (outcome), and of steps that are good or bad
(process).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from tasks.algorithms.common.optimizer import Optimizer
from tasks.algorithms.language import labelled_reward_model, step_rewards
from tasks.algorithms.language.causal_lm import PretrainedModel
from tasks.common import processes, tables
from tasks.common.tokenizers import Tokenizer
from tasks.common.tracking import Row
from tasks.language.configs.reward_model import RewardModelConfig
from tasks.language.data.comparisons import Limit
from tasks.language.data.solution_set import SolutionSet
from tasks.language.reward_modelling import solution_measures
from tasks.language.reward_modelling.objective import BINS, SCORED_AT_ONCE
from tasks.language.tables.held_out import HeldOut
from tasks.language.tables.solutions import Solutions
from tasks.stage import Metrics


class OnSolutions:
    """Solutions with a label for each, or for each step."""

    def __init__(self, config: RewardModelConfig, examples: Path, tokenizer: Tokenizer) -> None:
        assert config.objective in ("outcome", "process")
        self.config = config
        limit = Limit(config.max_length, config.truncation)
        table = tables.read_table(Solutions, examples / "test.parquet").sort_values("prompt_id", kind="stable")
        learnt = tables.read_table(Solutions, examples / "train.parquet")
        headed = config.kind == "head"  # log-probabilities have one output, and one label for an answer or a step
        self.said_by = config.outcome_tokens if headed else "last"
        self.train = SolutionSet(learnt, tokenizer, limit, config.objective, classes=headed)
        self.test = SolutionSet(table, tokenizer, limit, config.objective, classes=headed)
        self.table = table[self.test.kept]
        self.train.print_cut_counts("reward_model", limit)
        self.steps = self.train.steps(config.prompts_per_batch, config.epochs)
        self.held_out_table = pd.DataFrame()  # what the model says of the held-out solutions

    def check_positions(self, model: PretrainedModel) -> None:
        """DataError with one line where a solution is longer than the model can read."""
        for solutions in (self.train, self.test):
            solutions.check_positions(model, "reward_model.max_length")

    def fit(self, model: PretrainedModel, optimizer: Optimizer, start: int) -> Iterator[Row]:
        """Train the model from step `start` on."""
        config = self.config
        batches = self.train.batches(config.prompts_per_batch, config.epochs, config.seed, self.said_by, start)
        return labelled_reward_model.fit(model, batches, optimizer, config.training.accumulate, config.likelihood)

    def measure(self, model: PretrainedModel) -> Metrics:
        """Accuracies of the held-out solutions."""
        logits = labelled_reward_model.predict_label_logits(model, self.test.iterate_in_order(SCORED_AT_ONCE)).double()
        target = torch.cat([batch.target[batch.at] for batch in self.test.iterate_in_order(SCORED_AT_ONCE)]).double()
        shared = {
            "accuracy": labelled_reward_model.compute_right_prediction_mask(logits, target).double().mean().item(),
            "loss": labelled_reward_model.compute_label_losses(logits, target).mean().item(),
        }
        self.held_out_table = self._build_held_out_table(logits)
        return {**shared, **solution_measures.compute_solution_measures(self.held_out_table)}

    def write(self, out: Path) -> None:
        """Write calibration.csv and held_out.parquet, of what was measured last."""
        tables.write_curves(
            solution_measures.compute_solution_calibration(self.held_out_table, BINS), out / "calibration.csv"
        )
        if processes.is_main_process():
            tables.write_table(HeldOut, self.held_out_table, out / "held_out.parquet")

    def measure_after_training(self, model: PretrainedModel, generator: torch.Generator) -> Metrics:
        """How many solutions were cut or left out."""
        return {"truncated": self.train.truncated, "dropped": self.train.dropped}

    def _build_held_out_table(self, logits: Tensor) -> pd.DataFrame:
        """The held-out solutions with their rewards; of steps with the probabilities of their classes."""
        frame = self.table[["solution_id", "prompt_id", "prompt", "response", "right"]]
        frame = frame.assign(length=[len(answer) for answer in self.test.answers])
        if self.config.objective == "outcome":
            return frame.assign(reward=logits.squeeze(1).sigmoid().numpy())
        parts = step_rewards.compute_class_probabilities(logits).split([len(ends) for ends in self.test.ends])
        steps: dict[str, Any] = {
            name: [part[:, number].tolist() for part in parts] for number, name in enumerate(step_rewards.CLASSES)
        }
        label_names = [name for name in ("labels", "truth") if name in self.table]
        cut: dict[str, Any] = {
            name: [[*values[: len(ends)]] for values, ends in zip(self.table[name], self.test.ends, strict=True)]
            for name in label_names
        }
        worth = torch.nn.utils.rnn.pad_sequence([1 - part[:, 0] for part in parts], batch_first=True, padding_value=-1)
        rewards = step_rewards.combine_step_scores(worth, worth >= 0, self.config.step_score)
        return frame.assign(reward=rewards.numpy(), **cut, **steps)
