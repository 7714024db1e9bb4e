"""Reward models on preference pairs: single comparisons, or all pairs of a ranking at once."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.algorithms.common.optimizer import Optimizer
from tasks.algorithms.language import degenerate, reward_model, reward_model_checks
from tasks.algorithms.language.causal_lm import PretrainedModel
from tasks.algorithms.language.pairs import Pairs
from tasks.common import processes, tables
from tasks.common.errors import DataError
from tasks.common.tokenizers import Tokenizer
from tasks.common.tracking import Row
from tasks.language.configs.reward_model import RewardModelConfig
from tasks.language.data import rankings
from tasks.language.data.comparisons import ComparisonSet, Limit
from tasks.language.reward_modelling.objective import BINS, SCORED_AT_ONCE
from tasks.language.rewards.ranking_accuracy import STRATA, compute_order_accuracy, has_worked_steps
from tasks.language.tables.held_out import HeldOut
from tasks.language.tables.preferences import Comparisons, Rankings, get_strength_level
from tasks.stage import Metrics

LEVELS = ("negligibly", "slightly", "better", "significantly")  # as the keys of reward_model.margins name them
BEFORE = {
    "against_points/STRATUM": "The share of the held-out comparisons with different points from the annotator (or "
    "given scores) that the model orders as these do; a tie counts half.",
}
METRICS = {
    **BEFORE,
    "margin": "The mean of r_w - r_l over held-out comparisons.",
    "by_level/LEVEL": "The share of the held-out comparisons of this level of strength whose chosen "
    "answer scores higher.",
    "pairs/STRATUM": "The number of held-out comparisons.",
    "against_labels/STRATUM": "The share of the held-out comparisons that the scores order as the annotator did; a "
    "tie counts half.",
    "beats/cut_off": "The share of the held-out prompts whose best answer scores above its own first half.",
    "beats/unending": "The share of the held-out prompts whose best answer scores above itself "
    "repeated without an end.",
    "beats/shuffled": "The share of the held-out prompts whose best answer scores above its own "
    "tokens in another order.",
    "beats/random_tokens": "The share of the held-out prompts whose best answer scores above random tokens.",
}


class OnPairs:
    """Comparisons, or rankings as all of their pairs; both are measured by the held-out comparisons."""

    def __init__(self, config: RewardModelConfig, examples: Path, tokenizer: Tokenizer) -> None:
        self.config = config
        self.vocabulary = len(tokenizer)
        limit = Limit(config.max_length, config.truncation)
        table = tables.read_table(Comparisons, examples / "test.parquet").sort_values("prompt_id", kind="stable")
        self.train = ComparisonSet(_load_training_pairs(config, examples), tokenizer, limit)
        self.test = ComparisonSet(table, tokenizer, limit)
        self.table = table[self.test.kept]
        self.train.print_cut_counts("reward_model", limit)
        self.steps = self.train.steps(config.prompts_per_batch, config.epochs)
        self.scores = self.untrained = torch.zeros(0)

    def check_positions(self, model: PretrainedModel) -> None:
        """DataError with one line where a pair is longer than the model can read."""
        for compared in (self.train, self.test):
            compared.check_positions(model, "reward_model.max_length")

    def fit(self, model: PretrainedModel, optimizer: Optimizer, start: int) -> Iterator[Row]:
        """Train the model from step `start` on."""
        config = self.config
        batches = self.train.batches(config.prompts_per_batch, config.epochs, config.seed, start)
        if config.corrupted:
            batches = iterate_with_corrupted_answers(batches, config, self.vocabulary, start)
        return reward_model.fit(
            model,
            batches,
            optimizer,
            margins=[getattr(config.margins, name) for name in LEVELS],
            centering=config.centering,
            likelihood=config.likelihood,
            accumulate=config.training.accumulate,
        )

    def measure(self, model: PretrainedModel) -> Metrics:
        """Accuracies of the held-out comparisons."""
        self.scores = reward_model.score_batches(model, self.test.responses(SCORED_AT_ONCE)).double()
        self.untrained = self.untrained if len(self.untrained) else self.scores  # of the first measure
        return compute_pair_accuracies(self.table, self.test.margins(self.scores))

    def write(self, out: Path) -> None:
        """Write calibration.csv and held_out.parquet, of what was measured last."""
        tables.write_curves(
            reward_model_checks.compute_calibration_bins(self.test.margins(self.scores), BINS), out / "calibration.csv"
        )
        if processes.is_main_process():
            tables.write_table(HeldOut, self._build_held_out_table(), out / "held_out.parquet")

    def measure_after_training(self, model: PretrainedModel, generator: torch.Generator) -> Metrics:
        """How often a good answer beats a corrupted one."""
        held_out = self.test.batches(self.config.prompts_per_batch, 1, self.config.seed)
        beaten = reward_model_checks.measure_wins_over_corruptions(model, held_out, self.vocabulary, generator)
        return {"truncated": self.train.truncated, "dropped": self.train.dropped, "beats": beaten}

    def _build_held_out_table(self) -> pd.DataFrame:
        names = ["comparison_id", "prompt_id", "prompt", "chosen", "rejected", "strength", "person"]
        names += ["chosen_score", "rejected_score", "chosen_right", "rejected_right"]
        frame = self.table[[name for name in names if name in self.table]]
        chosen, rejected = self.test.get_pair_indices()
        lengths = torch.tensor([len(answer) for answer in self.test.answers])
        return frame.assign(
            chosen_untrained=self.untrained[chosen].numpy(),
            rejected_untrained=self.untrained[rejected].numpy(),
            chosen_reward=self.scores[chosen].numpy(),
            rejected_reward=self.scores[rejected].numpy(),
            chosen_length=lengths[chosen].numpy(),
            rejected_length=lengths[rejected].numpy(),
        )


def _load_training_pairs(config: RewardModelConfig, examples: Path) -> pd.DataFrame:
    if config.objective == "pairs":
        return tables.read_table(Comparisons, examples / "train.parquet")
    path = examples / "rankings.parquet"
    if not path.is_file():
        raise DataError(
            f"{path}: no such file; objective ranking learns from the rankings that preferences are made of"
        )
    table = tables.read_table(Rankings, path)
    return rankings.build_ranking_pairs(table[~table["held_out"]], config.ties)


def iterate_with_corrupted_answers(
    batches: Iterator[Pairs], config: RewardModelConfig, vocabulary: int, start: int
) -> Iterator[Pairs]:
    """The batches after number `start`, each with a corrupted answer to each prompt: drawn by the batch's number
    alone.
    """
    for number, pairs in enumerate(batches, start):
        generator = torch.Generator().manual_seed(config.seed * 1_000_003 + number)
        yield degenerate.add_corrupted_pairs(pairs, config.corrupted, vocabulary, generator)


def compute_pair_accuracies(table: pd.DataFrame, margins: Tensor) -> Metrics:
    """Accuracies by stratum and level from the margins r_w - r_l (P,) of the comparisons of `table` (P rows).

    `against_points` takes the order of the points for true even where the noisy annotator said otherwise. A stratum or
    level without pairs is left out, and so are all strata where nobody gave scores.
    """
    shown = {text: has_worked_steps(text) for text in {*table["chosen"], *table["rejected"]}}
    steps = (table["chosen"].map(shown).astype(int) + table["rejected"].map(shown).astype(int)).to_numpy()
    scored = "chosen_score" in table  # pairs of other people may come without scores
    order = (table["chosen_score"] - table["rejected_score"]).to_numpy() if scored else np.zeros(len(table))
    margin_values = margins.numpy()
    label = np.ones(len(table))
    rows = {"all": np.ones(len(table), dtype=bool), **{name: steps == count for count, name in enumerate(STRATA)}}
    levels = table["strength"].map(get_strength_level).to_numpy()
    return {
        "accuracy": (margins > 0).double().mean().item(),
        "loss": torch.nn.functional.softplus(-margins).mean().item(),
        "margin": margins.mean().item(),
        "by_level": {
            name: float((margin_values[levels == number] > 0).mean())
            for number, name in enumerate(LEVELS)
            if (levels == number).any()
        },
        "pairs": {name: int(picked.sum()) for name, picked in rows.items()},
        "against_labels": {
            name: compute_order_accuracy(margin_values[at], label[at]) for name, at in rows.items() if at.any()
        },
        **({"against_points": against} if (against := _compute_point_accuracies(margin_values, order, rows)) else {}),
    }


def _compute_point_accuracies(
    margins: NDArray[np.float64], order: NDArray[np.float64], rows: Mapping[str, NDArray[np.bool_]]
) -> Metrics:
    return {name: compute_order_accuracy(margins[at], order[at]) for name, at in rows.items() if order[at].any()}
