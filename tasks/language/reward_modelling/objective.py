"""What the stage `reward_model` needs of an objective."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import torch

from tasks.algorithms.common.optimizer import Optimizer
from tasks.algorithms.language.causal_lm import PretrainedModel
from tasks.common.tokenizers import Tokenizer
from tasks.common.tracking import Row
from tasks.language.configs.reward_model import RewardModelConfig
from tasks.stage import Metrics

BINS = 10  # of the calibration curve
SCORED_AT_ONCE = 128  # held-out responses in one pass; changes speed only


class Objective(Protocol):
    """Examples to learn from and held-out ones, a loss, and what is measured."""

    steps: int  # of the optimizer

    def __init__(self, config: RewardModelConfig, examples: Path, tokenizer: Tokenizer) -> None:
        """Read the examples."""
        ...

    def check_positions(self, model: PretrainedModel) -> None:
        """DataError with one line where an example is longer than the model can read."""
        ...

    def fit(self, model: PretrainedModel, optimizer: Optimizer, start: int) -> Iterator[Row]:
        """Train the model from step `start` on; yields the metrics of each step."""
        ...

    def measure(self, model: PretrainedModel) -> Metrics:
        """What the model makes of the held-out examples."""
        ...

    def write(self, out: Path) -> None:
        """Write calibration.csv and held_out.parquet, of what was measured last."""
        ...

    def measure_after_training(self, model: PretrainedModel, generator: torch.Generator) -> Metrics:
        """What is measured of the trained model alone, and how many examples were cut."""
        ...
