"""Reading a Minari data set against Minari's own reader: `python -m benchmarks.episodes` writes
benchmarks/results/episodes.json.

Both read the same file, which our code wrote, and take turns. `--quick` only shows that everything runs; its times mean
nothing.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from minari.dataset.minari_storage import MinariStorage

from benchmarks import result_files
from benchmarks.engine import describe_machine
from benchmarks.rl_report import format_median_and_range
from tasks.offline.datasets import dataset_files, episodes
from tasks.offline.datasets.dataset_files import ScoreReference
from tasks.offline.datasets.episodes import Episode

RESULT = Path(__file__).parent / "results/episodes.json"
ENVIRONMENT = "Hopper-v5"
SEEN = 11
TAKEN = 3


@dataclass(frozen=True)
class Case:
    """A line of the table: a number of episodes of between `shortest` and `longest` steps."""

    name: str
    count: int
    shortest: int
    longest: int


CASES = [Case("9,090 episodes of 8 to 20 steps", 9090, 8, 20), Case("400 episodes of 100 to 500 steps", 400, 100, 500)]
ROUNDS = 5
QUICK_ROUNDS = 1
QUICK_COUNT = 20


def make_random_episodes(case: Case, count: int) -> list[Episode]:
    """Random numbers in the shape of Hopper's episodes; every other one is truncated."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(case.shortest, case.longest + 1, count)
    return [
        episodes.make_episode(
            rng.normal(size=(steps + 1, SEEN)).astype(np.float32),
            rng.uniform(-1, 1, (steps, TAKEN)).astype(np.float32),
            rng.normal(size=steps).astype(np.float32),
            number % 2 == 0,
        )
        for number, steps in enumerate(lengths)
    ]


def measure_reading_seconds(case: Case, count: int, rounds: int, folder: Path) -> dict[str, list[float]]:
    """Seconds of processor time: Minari's reader, our reader, and a stage's whole work to check the data set and load
    it as tensors.
    """
    path = folder / "made-up"
    dataset_files.write_offline_dataset(
        path, ENVIRONMENT, make_random_episodes(case, count), ScoreReference(0.0, 1.0), {}
    )
    storage = MinariStorage.read(path / "data")
    readers: dict[str, Callable[[], object]] = {
        "minari": lambda: list(storage.get_episodes(range(count))),
        "ours": lambda: list(episodes.read_episode_file(path / dataset_files.DATA)),
        "stage": lambda: dataset_files.read_offline_dataset(path),
    }
    seconds: dict[str, list[float]] = {name: [] for name in readers}
    for number in range(rounds + 1):
        for name, read in readers.items():
            began = time.process_time()
            read()
            if number:
                seconds[name].append(time.process_time() - began)
    return seconds


def format_reading_row(case: Case, seconds: dict[str, list[float]]) -> str:
    """A line of the table."""
    factor = statistics.median(seconds["minari"]) / statistics.median(seconds["ours"])
    cells = [
        format_median_and_range(seconds["minari"], 2),
        format_median_and_range(seconds["ours"], 2),
        f"{factor:.1f}",
        format_median_and_range(seconds["stage"], 2),
    ]
    return f"| {case.name} | {' | '.join(cells)} |"


def render_reading_introduction(rounds: int, load: float) -> list[str]:
    """What was measured, on which machine, and how."""
    return [
        "# Reading a data set, against Minari's reader",
        "",
        f"Made by `python -m benchmarks.episodes` on {describe_machine('h5py', 'minari', 'numpy')}. "
        f"Load of the machine when it began: {load:.1f}.",
        "",
        f"Seconds of processor time; medians of {rounds} rounds (range in brackets) after one that did not count, "
        "the sides in "
        "turn. The same HDF5 file in Minari's layout, five small arrays an episode, in the shape of Hopper's. Both "
        "give every "
        "episode's arrays; ours has also looked at their types and at the return that was noted. A stage then "
        "checks all "
        "values and joins them as tensors.",
        "",
        "| | Minari | posttrain | times as fast | a stage, all in all |",
        "|---|---|---|---|---|",
    ]


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.episodes", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few episodes, to see that it runs")
    parser.add_argument("--out", type=Path, help="where the table goes; with --quick nowhere by default")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    rounds = QUICK_ROUNDS if given.quick else ROUNDS
    rows = []
    single: dict[str, dict[str, list[float]]] = {}
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            seconds = measure_reading_seconds(case, QUICK_COUNT if given.quick else case.count, rounds, Path(folder))
        single[case.name] = seconds
        rows.append(format_reading_row(case, seconds))
        print(rows[-1], flush=True)
    out = given.out or (None if given.quick else RESULT)
    if out:
        result_files.write_result(out, {"page": [*render_reading_introduction(rounds, load), *rows]}, single)


if __name__ == "__main__":
    main()
