"""How long training will take, and how much memory it needs, before anything runs: by earlier runs, else by arithmetic.

Minutes by arithmetic are the floating-point operations of each stage (6 for a weight and a token that is trained, 2 for
one that is read or sampled: arXiv:2001.08361, section 2.1) over what this device reaches in a large product. Small
models do not reach it, and sampling never does, so that a run takes longer. Memory is that of tasks/memory on one
device, at the length of a typical example.
"""

import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from tasks.common import models
from tasks.language.configs.parts.python_rewards import BY_MODEL
from tasks.memory import terms
from tasks.memory.shapes import Shape
from tasks.memory.workloads import MemoryOptions, build_workload

# operations
TRAINED = 6
READ = 2
UNITS = {"days": 86_400, "h": 3_600, "min": 60, "s": 1}  # with their seconds, the largest first


class StageWork(NamedTuple):
    """What a stage does: tokens it trains on, and tokens it only reads or samples."""

    trained: int
    read: int


def measure_device_speed(seconds: float = 0.3) -> float:
    """Operations a second of this device in a product of two matrices of 1,024 rows."""
    left = torch.randn(1024, 1024, device=models.choose_device())
    (left @ left).sum().item()
    started = time.monotonic()
    products = 0
    while time.monotonic() - started < seconds:
        (left @ left).sum().item()
        products += 1
    return 2 * 1024**3 * products / (time.monotonic() - started)


def estimate_stage_work(section: str, config: Any, rows: int, length: int) -> StageWork | None:
    """What the stage `section` does on `rows` examples of `length` tokens; None for a stage that trains no model."""
    if section == "sft":
        count = min(rows, config.demonstrations)
        return StageWork(count * config.epochs * length, 0)
    if section in ("dpo", "reward_model"):
        return StageWork(2 * rows * config.epochs * length, 2 * rows * length if section == "dpo" else 0)
    if section == "rejection_sft":
        answers = min(rows, config.prompts) * config.samples
        sequence = length + config.max_new_tokens
        return StageWork(answers // config.samples * sequence * config.epochs, answers * config.max_new_tokens)
    if section in ("reinforce", "ppo", "grpo"):
        answers = config.steps * config.prompts_per_step * config.samples
        passes = getattr(config, "epochs", 1) * getattr(config, "updates", 1)
        critics = int(section == "ppo" or getattr(config, "baseline", "") == "critic")
        frozen = int(section == "ppo" or getattr(config, "beta", 0) > 0) + int(any(map(config.reward.get, BY_MODEL)))
        sequence = length + config.max_new_tokens
        trained = answers * passes * (1 + critics) * sequence
        return StageWork(trained, answers * sequence * (1 + frozen))
    return None


def iterate_cost_estimate_lines(
    configs: Mapping[str, Any],
    stages: Collection[str],
    shape: Shape,
    examples: Mapping[str, tuple[int, float]],
    durations: Mapping[str, str],
) -> Iterator[str]:
    """A line for each stage that trains a language model.

    `examples` has by stage how many there are, and a typical one's tokens; `durations` how long a stage takes in words,
    where a run of it says so. For any other stage it is what arithmetic says.
    """
    rate = measure_device_speed()
    for section in stages:
        count, length = examples.get(section, (0, 0))
        done = estimate_stage_work(section, configs[section], count, round(length)) if count else None
        if done is None:
            continue
        sequence = round(length) + getattr(configs[section], "max_new_tokens", 0)
        whole, _ = terms.compute_peak_memory(
            terms.list_memory_terms(build_workload(section, shape, configs, MemoryOptions(sequence=sequence)))
        )
        seconds = shape.weights * (TRAINED * done.trained + READ * done.read) / rate
        time_needed = f"about {durations[section]}" if section in durations else format_least_time(seconds)
        memory = format_memory_size(whole)
        yield f"{section}: {time_needed} on this device ({models.choose_device()}), about {memory} of memory"


def format_least_time(seconds: float) -> str:
    """The time that arithmetic alone takes, in words; what takes less than a second of it says nothing of how long a
    run takes.
    """
    if seconds < 1:
        return "less than a second of arithmetic"
    unit, size = next(((unit, size) for unit, size in UNITS.items() if seconds >= size))
    return f"at least {seconds / size:.1f} {unit}"


def format_memory_size(size: float) -> str:
    """Bytes in words."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{max(size / 1e6, 1):.0f} MB"
