"""Gradient steps a second against d3rlpy: `python -m benchmarks.offline` writes benchmarks/results/offline.json.

Both sides train on the same made-up data and take turns, d3rlpy in a process of its own. Both compute the same in a
step (tests/oracles/test_d3rlpy.py). `--quick` only shows that everything runs; its times mean nothing.
"""

import argparse
import os
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import offline_peer as peer
from benchmarks import result_files
from benchmarks.engine import describe_machine
from benchmarks.offline_ours import Ours
from benchmarks.rl_report import format_median_and_range
from tasks.algorithms.common import linear, matmul_backend
from tasks.algorithms.offline.transition_tensors import Spaces, Transitions
from tasks.stage import keep_freed_memory

RESULT = Path(__file__).parent / "results/offline.json"
ROUNDS = 7
QUICK_ROUNDS = 2
WORK_STEPS = 4  # whose products are counted: some methods move the policy in every other step
LUNAR_LANDER = Spaces(8, 4, discrete=True)
HOPPER = Spaces(11, 3, discrete=False)
# of the made-up data; lengths are uniform up to LONGEST
EPISODES = 100
LONGEST = 500
SMALL = {"hidden": [256, 256], "batch_size": 256, "learning_rate": 3e-4, "gamma": 0.99, "target_every": 1000}
TWIN = SMALL | {"critics": 2, "target_rate": 0.005, "noise": 0.2, "noise_clip": 0.5, "policy_every": 2}
SEQUENCE = {"heads": 1, "context": 20, "batch_size": 64, "timesteps": LONGEST, "clip": 0.25}
SEQUENCE |= {"learning_rate": 1e-4, "scale": 1000.0}


@dataclass(frozen=True)
class Case:
    """A line of the table."""

    name: str
    spaces: Spaces
    settings: dict[str, Any]
    steps: int  # in each round
    half: bool = False  # whether bfloat16 is measured too


CASES = [
    Case("BC", LUNAR_LANDER, {"method": "bc", **SMALL}, 400),
    Case("double DQN", LUNAR_LANDER, {"method": "dqn", **SMALL}, 400),
    Case("CQL, discrete", LUNAR_LANDER, {"method": "cql", "alpha": 1.0, **SMALL}, 400),
    Case(
        "CQL, continuous, 10 samples",
        HOPPER,
        {"method": "cql_continuous", "alpha": 5.0, "samples": 10, "target_rate": 0.005, **SMALL},
        16,
        half=True,
    ),
    Case(
        "IQL, continuous",
        HOPPER,
        {"method": "iql", "expectile": 0.7, "beta": 3.0, "max_weight": 100.0, **TWIN},
        100,
        half=True,
    ),
    Case("TD3+BC", HOPPER, {"method": "td3_bc", "alpha": 2.5, "layer_norm": False, **TWIN}, 100, half=True),
    Case(
        "ReBRAC",
        HOPPER,
        {"method": "rebrac", "policy_beta": 0.1, "critic_beta": 0.01, "layer_norm": True, **TWIN},
        100,
        half=True,
    ),
    Case(
        "DT, discrete, width 64, 2 layers, no dropout",
        LUNAR_LANDER,
        {"method": "decision_transformer", "width": 64, "layers": 2, "dropout": 0.0, **SEQUENCE},
        24,
        half=True,
    ),
    Case(
        "DT, continuous, width 128, 3 layers, dropout 0.1",
        HOPPER,
        {"method": "decision_transformer", "width": 128, "layers": 3, "dropout": 0.1, **SEQUENCE},
        8,
        half=True,
    ),
]


@dataclass
class Rates:
    """Steps for each second of processor time, one entry for each round."""

    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    half: list[float] = field(default_factory=list)  # ours in bfloat16
    work: float = 0.0  # operations of our matrix products in one step


@dataclass(frozen=True)
class Speed:
    """What one core reaches in a large matrix product, in operations a second."""

    single: float
    half: float

    @classmethod
    def measured(cls) -> "Speed":
        """In products of 2,560 x 256 by 256, the faster of torch's and ours."""
        x = torch.randn(2560, 256)
        theirs = nn.Linear(256, 256)
        ours = linear.Linear(256, 256)
        return cls(
            max(cls._measure_best_speed(theirs, x), cls._measure_best_speed(ours, x)),
            cls._measure_best_speed(theirs.bfloat16(), x.bfloat16()),
        )

    @staticmethod
    @torch.no_grad()
    def _measure_best_speed(layer: nn.Linear, x: Tensor) -> float:
        times = []
        for _ in range(50):
            began = time.process_time()
            layer(x)
            times.append(time.process_time() - began)
        return 2 * x.numel() * layer.out_features / min(times)


def make_random_transitions(spaces: Spaces, episodes: int) -> Transitions:
    """Random numbers in the shape of a data set; half of the episodes terminate."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(50, LONGEST + 1, (episodes,), generator=generator)
    count = int(lengths.sum())
    terminated = torch.zeros(count, dtype=torch.bool)
    terminated[(lengths.cumsum(0) - 1)[::2]] = True
    seen = torch.randn(count, 2, spaces.observation, generator=generator)
    moves = torch.rand(count, spaces.action, generator=generator) * 1.8 - 0.9
    actions = torch.randint(spaces.action, (count,), generator=generator) if spaces.discrete else moves
    return Transitions(seen[:, 0], actions, torch.randn(count, generator=generator), seen[:, 1], terminated, lengths)


def count_step_flops(ours: Ours) -> float:
    """The operations of the matrix products of a step, by torch's count, which knows torch's products only."""
    with mock.patch.object(linear, "uses_onednn", return_value=False), FlopCounterMode(display=False) as counter:
        ours.fit(WORK_STEPS)
    return counter.get_total_flops() / WORK_STEPS


def measure_step_rates(case: Case, rounds: int, steps: int, episodes: int, folder: Path) -> tuple[Rates, str]:
    """The rates of both sides, which take turns, after one warm-up round; and d3rlpy's version."""
    keep_freed_memory()
    data = make_random_transitions(case.spaces, episodes)
    rates = Rates()
    rates.work = count_step_flops(Ours(data, case.spaces, 0, case.settings))
    ours = Ours(data, case.spaces, 0, case.settings)
    half = Ours(data, case.spaces, 0, case.settings | {"bfloat16": True}) if case.half else None
    with peer.Peer() as theirs:
        path = peer.write_transitions(data, folder / "data.npz")
        version = theirs.make(
            path, case.spaces.action, case.spaces.observation, 0, discrete=case.spaces.discrete, **case.settings
        )
        for number in range(rounds + 1):
            turns = [
                (rates.ours, lambda: ours.fit(steps)),
                (rates.theirs, lambda: float(theirs.ask("fit", count=steps)["seconds"])),
            ]
            if half:
                turns.append((rates.half, lambda: half.fit(steps)))
            for found, turn in turns[:: 1 if number % 2 == 0 else -1]:
                seconds = turn()
                if number:
                    found.append(steps / seconds)
    return rates, version


def format_rates_row(case: Case, rates: Rates, speed: Speed) -> str:
    """A line of the table."""
    their = statistics.median(rates.theirs)
    factors = [statistics.median(found) / their if found else None for found in (rates.ours, rates.half)]
    digits = 0 if their > 50 else 1
    parts = [
        format_median_and_range(rates.theirs, digits),
        format_median_and_range(rates.ours, digits),
        f"{factors[0]:.1f}",
    ]
    parts += [
        format_median_and_range(rates.half, digits) if rates.half else "",
        f"{factors[1]:.1f}" if factors[1] else "",
    ]
    limits = [speed.single / rates.work / their, speed.half / rates.work / their if rates.half else None]
    parts += [f"{rates.work / 1e9:.2f}", *(f"{limit:.1f}" if limit else "" for limit in limits)]
    return f"| {case.name} | {' | '.join(parts)} |"


def render_offline_introduction(version: str, rounds: int, load: float, seconds: float, speed: Speed) -> list[str]:
    """What was measured, on which machine, and how."""
    return [
        "# Offline methods against d3rlpy: gradient steps a second",
        "",
        f"Made by `python -m benchmarks.offline` in {seconds / 60:.0f} minutes on {describe_machine('torch')}; "
        f"{version}. "
        f"bfloat16 in the processor: {'yes' if has_bfloat16_instructions() else 'no'}. Load of the machine when it "
        "began: "
        f"{load:.1f}.",
        "",
        "Steps in a second of processor time, one thread on either side: which is a second of the clock where "
        "nothing else "
        f"runs. Medians of {rounds} rounds (range in brackets) after one that did not count, the sides "
        "turn about. Made-up "
        f"data in the shape of LunarLander-v3 (8 observations, 4 actions) or Hopper-v5 (11, 3): {EPISODES} "
        "episodes of 50 to "
        f"{LONGEST} steps. Same sizes, batch and optimizer (Adam): two layers of 256, batch 256; Decision "
        "Transformer with K 20, "
        "batch 64, one head, clipping. d3rlpy runs as its users run it, by `fit`, without a progress bar, files or "
        "evaluation; ours draws batches, steps, gathers metrics and reuses freed memory as the stages do. Losses "
        "and gradients of BC, DQN and CQL are "
        "equal on both sides (tests/oracles/test_d3rlpy.py). The transformers are alike, not equal: d3rlpy's "
        "computes every "
        "layer at all positions, masks its padding, and its discrete one has other position embeddings. d3rlpy's "
        "products in single precision are torch's default; of ours the large ones are by "
        f"{matmul_backend.get_or_measure_matmul_library()} "
        "(tasks/algorithms/common/matmul_backend.py).",
        "",
        "The last three columns say what the processor allows: the operations of the matrix products of one of our "
        "steps (10^9, by torch's count), and how many times d3rlpy's rate a step would have that were these "
        "products and nothing else, "
        f"at the {speed.single / 1e9:.0f} x 10^9 operations a second that one core reaches here in a product of "
        f"2,560 x 256 by 256, and at the {speed.half / 1e9:.0f} x 10^9 in bfloat16.",
        "",
        "| | d3rlpy | posttrain | times as fast | posttrain, bfloat16 | bfloat16, times as fast | products | most "
        "| bfloat16, most |",
        "|---|---|---|---|---|---|---|---|---|",
    ]


def has_bfloat16_instructions() -> bool:
    """Whether this processor has instructions for matrix products in bfloat16."""
    info = Path("/proc/cpuinfo")
    return info.exists() and any(flag in info.read_text() for flag in ("avx512_bf16", "amx_bf16"))


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.offline", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it runs")
    parser.add_argument("--out", type=Path, help="where the table goes; with --quick nowhere by default")
    given = parser.parse_args()
    peer.get_d3rlpy_python()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    began = time.perf_counter()
    version = ""
    rows = []
    speed = Speed.measured()
    single = {}
    rounds = QUICK_ROUNDS if given.quick else ROUNDS
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            size = (2, 5) if given.quick else (case.steps, EPISODES)
            rates, version = measure_step_rates(case, rounds, *size, Path(folder))
        single[case.name] = vars(rates)
        rows.append(format_rates_row(case, rates, speed))
        print(rows[-1], flush=True)
    lines = [*render_offline_introduction(version, rounds, load, time.perf_counter() - began, speed), *rows]
    out = given.out or (None if given.quick else RESULT)
    if out:
        result_files.write_result(out, {"page": lines}, single)


if __name__ == "__main__":
    main()
