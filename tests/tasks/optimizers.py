"""Optimizers of the tests: AdamW with a cosine schedule, unless a test says otherwise."""

from tasks.algorithms.common.optimizer import Optimizer, OptimizerSettings

SETTINGS = OptimizerSettings("adamw", "cosine", warmup=0.03, final_rate=0.1, betas=(0.9, 0.95), weight_decay=0.0)


def make_optimizer(model, learning_rate, steps, *, clip, kind="adamw", **changes):
    """An optimizer of `kind` with SETTINGS but for the `changes`."""
    settings = OptimizerSettings(**{**vars(SETTINGS), "optimizer": kind, **changes})
    return Optimizer(model, learning_rate, steps, clip, settings)
