"""DPO: fit the policy to preference pairs without a reward model (arXiv:2305.18290, eq. 7); IPO and SimPO likewise."""

from collections.abc import Iterator
from pathlib import Path

import torch

from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings
from tasks.algorithms.language import dpo
from tasks.common import models, tables
from tasks.common.checkpoints import open_resumable_training
from tasks.common.config import build_settings
from tasks.common.tracking import Row
from tasks.language.configs.dpo import DpoConfig
from tasks.language.data.comparisons import ComparisonSet, Limit
from tasks.language.tables.preferences import Comparisons
from tasks.language.training import trained_model
from tasks.stage import Metrics, main

REFERENCE_BATCH = 64  # responses at a time; changes speed only
CURVES = dpo.METRICS
METRICS = {
    **CURVES,
    "truncated": "The number of training pairs that were cut off at max_length.",
    "dropped": "The number of training pairs that were left out, since they are longer.",
}


def run(config: DpoConfig, policy: Path, preferences: Path, out: Path, curves: Path) -> Metrics:
    """Train `policy`, which is its own reference; write it to `out`, and the curve to `curves`."""
    torch.manual_seed(config.seed)
    trained = trained_model.load_trainable_model(policy, config.training, config.lora)
    tokenizer = models.load_tokenizer(policy)
    model = trained.model
    limit = Limit(config.max_length, config.truncation)
    pairs = ComparisonSet(tables.read_table(Comparisons, preferences / "train.parquet"), tokenizer, limit)
    pairs.print_cut_counts("dpo", limit)
    pairs.check_positions(model, "dpo.max_length")
    objective = build_settings(config, dpo.MarginLoss)
    reference = (
        dpo.compute_reference_logps(model, pairs.responses(REFERENCE_BATCH)) if objective.needs_reference else None
    )
    steps = pairs.steps(config.prompts_per_batch, config.epochs)
    settings = build_settings(config.training, OptimizerSettings)
    optimizer = Optimizer(model, config.learning_rate, steps, config.clip, settings)

    def fit(start: int) -> Iterator[Row]:
        batches = pairs.batches(config.prompts_per_batch, config.epochs, config.seed, start)
        parts = config.training.accumulate
        return dpo.fit(model, batches, optimizer, reference=reference, objective=objective, accumulate=parts)

    with open_resumable_training("dpo", config, policy, preferences) as training:
        curve = training.run(fit, {"model": trained.weights, "optimizer": optimizer}, steps)
        tables.write_curves(curve, curves)
        trained.save(tokenizer, out)
    return {**tables.compute_final_metrics(curve), "truncated": pairs.truncated, "dropped": pairs.dropped}


if __name__ == "__main__":
    main(run, data_parallel=True)
