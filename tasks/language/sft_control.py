"""SFT carried on over the problems of the policies, without a reward: what a policy that is trained by reward has to
beat.

A policy sees further problems and takes further steps. What both give without a reward, more demonstrations of these
problems give too.
"""

from pathlib import Path

from tasks.common.errors import DataError
from tasks.language.configs.sft_control import SftControlConfig
from tasks.language.training import supervised
from tasks.stage import Metrics, main

CURVES = supervised.CURVES
METRICS = supervised.METRICS


def run(config: SftControlConfig, policy: Path, demonstrations: Path, out: Path, curves: Path) -> Metrics:
    """Train the control whose name `out` ends with, from `policy`; write it to `out`, and the training curve to
    `curves`.
    """
    data = supervised.read_fine_tuning_data(demonstrations, config.skip, config.demonstrations)
    if data.train.empty:
        raise DataError(f"sft_control.skip = {config.skip}: {demonstrations} has no more demonstrations than that")
    [epochs] = [control.epochs for name, control in config.policies.items() if name == out.name]
    return supervised.train_supervised("sft_control", config, epochs, data, [policy, demonstrations], out, curves)


if __name__ == "__main__":
    main(run, data_parallel=True)
