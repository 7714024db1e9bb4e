"""How long training will take at least, and how much memory it needs, by arithmetic: before anything runs.

Minutes are the floating-point operations of each stage (6 for a weight and a token that is trained, 2 for one that is read or
sampled: arXiv:2001.08361, section 2.1) over what this device reaches in a large product. Small models do not reach it, and
sampling never does, so that a run takes longer. Memory is that of weights, gradients, optimizer and activations (34 bytes a
token, layer and unit of width at two bytes a number: arXiv:2205.05198, eq. 2 without its last term).
"""

import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from tasks.common import models

TRAINED, READ = 6, 2  # operations
BYTES = {"fp32": (16, 4, 2), "bf16": (18, 2, 1), "pure_bf16": (8, 2, 1)}  # a trained weight, a frozen one, activations


class Size(NamedTuple):
    """A model by its numbers."""

    weights: int
    layers: int
    width: int


class Work(NamedTuple):
    """What a stage does: tokens it trains on, tokens it only reads or samples, tokens in one pass, and frozen models beside."""

    trained: int
    read: int
    at_once: int
    frozen: int = 0
    critics: int = 0


def speed(seconds: float = 0.3) -> float:
    """Operations a second of this device in a product of two matrices of 1,024 rows."""
    left = torch.randn(1024, 1024, device=models.device())
    (left @ left).sum().item()
    started, products = time.monotonic(), 0
    while time.monotonic() - started < seconds:
        (left @ left).sum().item()
        products += 1
    return 2 * 1024**3 * products / (time.monotonic() - started)


def work(section: str, config: Any, rows: int, length: int) -> Work | None:
    """What the stage `section` does on `rows` examples of `length` tokens; None for a stage that trains no model."""
    if section == "sft":
        count = min(rows, config.demonstrations)
        return Work(count * config.epochs * length, 0, config.batch_size * length // config.training.accumulate)
    if section in ("dpo", "reward_model"):
        at_once = 2 * config.prompts_per_batch * length // config.training.accumulate
        reads = 2 * rows * length if section == "dpo" else 0
        return Work(2 * rows * config.epochs * length, reads, at_once)
    if section == "rejection_sft":
        answers = min(rows, config.prompts) * config.samples
        one = length + config.max_new_tokens
        return Work(
            answers // config.samples * one * config.epochs, answers * config.max_new_tokens, config.batch_size * one
        )
    if section in ("reinforce", "ppo", "grpo"):
        answers = config.steps * config.prompts_per_step * config.samples
        passes = getattr(config, "epochs", 1) * getattr(config, "updates", 1)
        critics = int(section == "ppo" or getattr(config, "baseline", "") == "critic")
        frozen = int(section == "ppo" or getattr(config, "beta", 0) > 0) + int(bool(config.reward.get("reward_model")))
        one = length + config.max_new_tokens
        trained = answers * passes * (1 + critics) * one
        return Work(trained, answers * one * (1 + frozen), config.micro_batch * one, frozen, critics)
    return None


def lines(
    configs: Mapping[str, Any], stages: Collection[str], size: Size, examples: Mapping[str, tuple[int, float]]
) -> Iterator[str]:
    """A line for each stage that trains a language model; `examples` has by stage how many there are, and a typical one's tokens."""
    rate = speed()
    for section in stages:
        count, length = examples.get(section, (0, 0))
        done = work(section, configs[section], count, round(length)) if count else None
        if done is None:
            continue
        a_weight, a_frozen_one, activation = BYTES[configs[section].training.precision]
        weights = size.weights * (a_weight * (1 + done.critics) + a_frozen_one * done.frozen)
        whole = weights + 34 * activation * done.at_once * size.layers * size.width
        seconds = size.weights * (TRAINED * done.trained + READ * done.read) / rate
        took = f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.1f} s"
        memory = f"{whole / 1e9:.1f} GB" if whole >= 1e9 else f"{whole / 1e6:.0f} MB"
        yield f"{section}: at least {took} on this device ({models.device()}), about {memory} of memory"
