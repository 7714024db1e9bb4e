"""A reward model on preference pairs (Bradley-Terry), with accuracy and calibration on prompts it has not seen."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
from tasks.algorithms.language import degenerate, reward_model
from tasks.algorithms.language.causal_lm import PretrainedModel
from tasks.algorithms.language.pairs import Pairs
from tasks.common import models, tables
from tasks.common.checkpoints import resumable
from tasks.common.config import settings_of
from tasks.common.tokenizers import Tokenizer
from tasks.common.tracking import Row
from tasks.language.configs.reward_model import RewardModelConfig
from tasks.language.data.comparisons import ComparisonSet, Limit
from tasks.language.rewards import reward_model_files
from tasks.language.rewards.ranking_accuracy import STRATA, accuracy, shows_steps
from tasks.language.tables.preferences import Comparisons
from tasks.language.training.trained_model import TrainedModel
from tasks.stage import Metrics, main

BINS = 10  # of the calibration curve
SCORED_AT_ONCE = 128  # held-out responses in one pass; changes speed only
CURVES = {**reward_model.METRICS, **reward_model.CALIBRATION}
HELD_OUT_METRICS = {
    "accuracy": "The share of the held-out comparisons whose chosen answer scores higher, from 0 to 1; chance is 0.5.",
    "loss": "The mean of -log sigmoid(r_w - r_l) over held-out comparisons; a model that tells nothing apart has log 2.",
    "against_rubric/STRATUM": "The share of the held-out comparisons with different rubric points (or given scores) that the model orders as these do; a tie counts half.",
}
METRICS = {
    **HELD_OUT_METRICS,
    "margin": "The mean of r_w - r_l over held-out comparisons.",
    "pairs/STRATUM": "The number of held-out comparisons.",
    "against_labels/STRATUM": "The share of the held-out comparisons that the scores order as the annotator did; a tie counts half.",
    "truncated": "The number of training pairs that were cut off at max_length.",
    "dropped": "The number of training pairs that were left out, since they are longer.",
    "beats/cut_off": "The share of the held-out prompts whose best answer scores above its own first half.",
    "beats/unending": "The share of the held-out prompts whose best answer scores above itself repeated without an end.",
    "beats/shuffled": "The share of the held-out prompts whose best answer scores above its own tokens in another order.",
    "beats/random_tokens": "The share of the held-out prompts whose best answer scores above random tokens.",
    **{f"untrained/{name}": f"Before training: {text[0].lower()}{text[1:]}" for name, text in HELD_OUT_METRICS.items()},
}


def run(config: RewardModelConfig, policy: Path, preferences: Path, out: Path, curves: Path) -> Metrics:
    """Start from `policy`; write the model, calibration.csv and curve.csv beside it, and the curve to `curves`."""
    torch.manual_seed(config.seed)
    tokenizer, generator = models.load_tokenizer(policy), torch.Generator().manual_seed(config.seed)
    trained = TrainedModel(partial(untrained, config, policy, generator, tokenizer), config.training, config.lora)
    model = trained.model
    table = tables.read(Comparisons, preferences / "test.parquet").sort_values("prompt_id", kind="stable")
    limit = Limit(config.max_length, config.truncation)
    train = ComparisonSet(tables.read(Comparisons, preferences / "train.parquet"), tokenizer, limit)
    test = ComparisonSet(table, tokenizer, limit)
    table = table[test.kept]
    train.say_cuts("reward_model", limit)
    for compared in (train, test):
        compared.check_positions(model, "reward_model.max_length")

    def margins() -> Tensor:
        return test.margins(reward_model.scores(trained.model, test.responses(SCORED_AT_ONCE)).double())

    before = accuracies(table, margins())
    steps = train.steps(config.prompts_per_batch, config.epochs)
    settings = settings_of(config.training, OptimizerSettings)
    optimizer = Optimizer(model, config.learning_rate, steps, config.clip, settings)

    def fit(start: int) -> Iterator[Row]:
        batches = train.batches(config.prompts_per_batch, config.epochs, config.seed, start)
        if config.corrupted:
            batches = with_rejected(batches, config, len(tokenizer), start)
        weights = {name: getattr(config, name) for name in ("margin", "centering", "likelihood")}
        return reward_model.fit(model, batches, optimizer, **weights, accumulate=config.training.accumulate)

    with resumable("reward_model", config, policy, preferences) as training:
        rows = training.run(fit, {"model": trained.weights, "optimizer": optimizer}, steps)
        tables.write_curves(rows, curves)
        trained.save(tokenizer, out)
        tables.write_curves(rows, out / "curve.csv")  # for the report, which reads the model's folder
        found = margins()
        tables.write_curves(reward_model.calibration(found, BINS), out / "calibration.csv")
        held_out = test.batches(config.prompts_per_batch, 1, config.seed)
        beaten = reward_model.beats_corrupted(trained.model, held_out, len(tokenizer), generator)
    return {
        **accuracies(table, found),
        "truncated": train.truncated,
        "dropped": train.dropped,
        "beats": beaten,
        "untrained": {name: before[name] for name in ("accuracy", "loss", "against_rubric") if name in before},
    }


def untrained(
    config: RewardModelConfig, policy: Path, generator: torch.Generator, tokenizer: Tokenizer, dtype: str
) -> PretrainedModel:
    """The policy as a reward model: its own log-probabilities, or a new head on its body."""
    if config.kind == "head":
        classifier = reward_model_files.load_classifier(policy, new=["score.weight"], dtype=dtype)
        vars(classifier.config).pop(reward_model.BETA, None)  # the policy may be a reward model of the other kind
        classifier.config.pad_token_id = tokenizer.pad_token_id
        reward_model.initialise_head(classifier, generator)
        return classifier
    model = models.load_model(policy, dtype)
    model.config.pad_token_id = tokenizer.pad_token_id
    setattr(model.config, reward_model.BETA, config.beta)
    return model


def with_rejected(batches: Iterator[Pairs], config: RewardModelConfig, vocabulary: int, start: int) -> Iterator[Pairs]:
    """The batches after number `start`, each with a corrupted answer to each prompt: drawn by the batch's number alone."""
    for number, pairs in enumerate(batches, start):
        generator = torch.Generator().manual_seed(config.seed * 1_000_003 + number)
        yield degenerate.with_corrupted(pairs, config.corrupted, vocabulary, generator)


def accuracies(table: pd.DataFrame, margins: Tensor) -> Metrics:
    """Accuracies by stratum from the margins r_w - r_l (P,) of the comparisons of `table` (P rows).

    `against_rubric` takes the rubric's order for true even where the noisy annotator said otherwise. A stratum without pairs
    is left out, and so are all where nobody gave scores.
    """
    shown = {text: shows_steps(text) for text in {*table["chosen"], *table["rejected"]}}
    steps = (table["chosen"].map(shown).astype(int) + table["rejected"].map(shown).astype(int)).to_numpy()
    scored = "chosen_score" in table  # pairs of other people may come without scores
    order = (table["chosen_score"] - table["rejected_score"]).to_numpy() if scored else np.zeros(len(table))
    found, label = margins.numpy(), np.ones(len(table))
    rows = {"all": np.ones(len(table), dtype=bool), **{name: steps == count for count, name in enumerate(STRATA)}}
    return {
        "accuracy": (margins > 0).double().mean().item(),
        "loss": torch.nn.functional.softplus(-margins).mean().item(),
        "margin": margins.mean().item(),
        "pairs": {name: int(picked.sum()) for name, picked in rows.items()},
        "against_labels": {name: accuracy(found[at], label[at]) for name, at in rows.items() if at.any()},
        **({"against_rubric": against} if (against := _ordered(found, order, rows)) else {}),
    }


def _ordered(found: NDArray[np.float64], order: NDArray[np.float64], rows: Mapping[str, NDArray[np.bool_]]) -> Metrics:
    return {name: accuracy(found[at], order[at]) for name, at in rows.items() if order[at].any()}


if __name__ == "__main__":
    main(run, data_parallel=True)
