"""Supervised fine-tuning on demonstrations: the loss is on what the assistant says, or on all of a plain text."""

from pathlib import Path

from tasks.language.configs.sft import SftConfig
from tasks.language.training import supervised
from tasks.stage import Metrics, main

CURVES = supervised.CURVES
METRICS = supervised.METRICS


def run(config: SftConfig, policy: Path, demonstrations: Path, out: Path, curves: Path) -> Metrics:
    """Fine-tune `policy`; write it to `out`, and the training curve to `curves`."""
    data = supervised.read_fine_tuning_data(demonstrations, 0, config.demonstrations)
    return supervised.train_supervised("sft", config, config.epochs, data, [policy, demonstrations], out, curves)


if __name__ == "__main__":
    main(run, data_parallel=True)
