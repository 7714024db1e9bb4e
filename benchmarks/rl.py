"""Rollouts, GRPO and DPO steps against TRL: `python -m benchmarks.rl` writes benchmarks/results/rl.json.

For each case both sides run in processes of their own and take steps in turn, while the other waits. First the losses
and gradients of both on one batch must be equal. `--quick` only shows that everything runs; its times mean nothing.
"""

import argparse
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks import result_files
from benchmarks.rl_cases import ALGORITHMS, CPU, CUDA, OURS, QUICK, THEIRS, THREADS, Case, Device, Size
from benchmarks.rl_report import (
    Times,
    format_case_name,
    render_all_tables,
    render_rl_introduction,
    render_variant_table,
)

RESULT = Path(__file__).parent / "results/rl.json"
LENGTHS = (64, 256)  # of prompts
ROUNDS = 5
VARIANT_ROUNDS = 2
WARM_UP = 1
# TRL reports every new trainer to its hub, unless it believes itself to be in CI.
QUIET = {"CI": "true", "TRL_EXPERIMENTAL_SILENCE": "1", "TQDM_DISABLE": "1", "HF_HUB_OFFLINE": "1"}


class Gate:
    """A side's end of the pipe: waits for its turn, times a step and reports the time."""

    def __init__(self, pipe: Connection, device: str) -> None:
        self.pipe = pipe
        self.device = device
        self.began = 0.0
        self.sampling = (0.0, 0)

    def clock(self) -> float:
        """The time in seconds, after the device has finished its work."""
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()
        return time.perf_counter()

    def report_ready(self) -> None:
        """Report that everything is loaded."""
        self.pipe.send(self.memory())

    def begin(self) -> None:
        """Wait for the turn, then start the clock."""
        self.pipe.recv()
        self.began = self.clock()

    def sampled(self, seconds: float, tokens: int) -> None:
        """Note the seconds and the number of tokens of this step's sampling."""
        self.sampling = seconds, tokens

    def end(self) -> None:
        """Report the end of the step."""
        self.pipe.send((self.clock() - self.began, *self.sampling, self.memory()))

    def memory(self) -> float:
        """The peak memory of this process so far, in MB; on a GPU the GPU's memory."""
        if self.device == "cuda":
            import torch

            return torch.cuda.max_memory_allocated() / 1e6
        # Kilobytes on Linux, bytes on macOS.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def run_side_process(side: str, case: Case, pipe: Connection) -> None:
    """One side of one case, in a process of its own."""
    os.environ |= QUIET
    import torch

    from benchmarks import rl_sides

    torch.set_num_threads(case.threads)
    rl_sides.SIDES[side](case, Gate(pipe, case.device))


def check_agreement_in_process(size: Size, prompt: int, folder: Path) -> None:
    """Exit with an error unless both sides give the same losses and gradients; in a process of its own."""
    os.environ |= QUIET
    import torch

    from benchmarks import rl_agreement

    torch.set_num_threads(THREADS)
    rl_agreement.check_losses_and_gradients(size, prompt, THREADS, folder)


def receive_message(pipe: Connection, label: str) -> Any:
    """A side's next message; SystemExit if it has died, with its reason on standard error."""
    try:
        return pipe.recv()
    except EOFError:
        raise SystemExit(f"{label}: its process has ended early") from None


def measure_steps_in_turns(runs: dict[str, tuple[str, Case]]) -> dict[str, Times]:
    """The times of each named (side, case), which take turns; another one begins in each round."""
    spawn = multiprocessing.get_context("spawn")
    found: dict[str, Times] = {label: Times() for label in runs}
    pipes: dict[str, Connection] = {}
    children = []
    try:
        for label, (side, case) in runs.items():
            pipes[label], far = spawn.Pipe()
            children.append(spawn.Process(target=run_side_process, args=(side, case, far), daemon=True))
            children[-1].start()
            far.close()
        for label, times in found.items():
            times.loaded = receive_message(pipes[label], label)
        for number in range(min(case.steps for _, case in runs.values())):
            for label in list(found)[:: 1 if number % 2 == 0 else -1]:
                pipes[label].send("go")
                seconds, sampling, tokens, found[label].peak = receive_message(pipes[label], label)
                if number >= WARM_UP:
                    found[label].steps.append(seconds)
                    found[label].sampling.append(sampling)
                    found[label].tokens.append(tokens)
    finally:
        for pipe in pipes.values():
            pipe.close()
        for child in children:
            child.join(30)
            child.kill()
    return found


def check_agreement(size: Size, prompt: int) -> None:
    """SystemExit unless both sides give the same losses and gradients."""
    with tempfile.TemporaryDirectory() as folder:
        child = multiprocessing.get_context("spawn").Process(
            target=check_agreement_in_process, args=(size, prompt, Path(folder))
        )
        child.start()
        child.join()
    if child.exitcode:
        raise SystemExit("The two sides do not give the same loss and gradient: nothing is measured.")


def build_cases(size: Size, device: Device, lengths: Sequence[int], rounds: int) -> list[Case]:
    """Every line of the tables."""
    return [
        Case(algorithm, prompt, natural, size, device, THREADS, WARM_UP + rounds)
        for algorithm in ALGORITHMS
        for prompt in lengths
        for natural in (False, True)
    ]


def build_trl_variants(size: Size, device: Device, prompt: int, rounds: int) -> dict[str, tuple[str, Case]]:
    """TRL under other settings, on half of the prompts, since all variants are in memory at once.

    Continuous batching is left out: on a CPU it took 3.5 times as long as `generate`, and memory by the gigabyte.
    """
    few = replace(size, prompts=size.prompts // 2)
    plain = Case("grpo", prompt, False, few, device, THREADS, WARM_UP + rounds)
    changed = {
        "as measured": plain,
        "dynamic cache": replace(plain, trl={}),
        "eager attention": replace(plain, attention="eager"),
        "one micro-batch": replace(plain, size=replace(few, micro_batch=few.prompts * few.samples)),
    }
    return {label: (THEIRS, case) for label, case in changed.items()}


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rl", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="toy sizes and few steps, to see that it runs")
    parser.add_argument("--out", type=Path, help="where the tables go; with --quick or cuda nowhere by default")
    return parser.parse_args()


def main() -> None:
    """Check, measure and write."""
    given = parse_arguments()
    load = os.getloadavg()[0]
    began = time.perf_counter()
    size = QUICK if given.quick else CUDA if given.device == "cuda" else CPU
    lengths, rounds = ((8,), 2) if given.quick else (LENGTHS, ROUNDS)
    check_agreement(QUICK if given.quick else replace(CPU, prompts=2, pairs=4), lengths[0])
    print("Losses and gradients of both sides are equal.", flush=True)
    results = []
    for case in build_cases(size, given.device, lengths, rounds):
        results.append((case, measure_steps_in_turns({OURS: (OURS, case), THEIRS: (THEIRS, case)})))
        middle = (f"{side} {statistics.median(times.steps):.2f}" for side, times in results[-1][1].items())
        print(f"{case.algorithm}, {format_case_name(case)}: seconds a step: {', '.join(middle)}", flush=True)
    tried = (
        {}
        if given.quick
        else measure_steps_in_turns(build_trl_variants(size, given.device, lengths[0], VARIANT_ROUNDS))
    )
    lines = render_rl_introduction(size, given.device, rounds, load, time.perf_counter() - began)
    lines += [*render_all_tables(results), *(render_variant_table(tried) if tried else [])]
    print("\n".join(lines))
    out = given.out or (None if given.quick or given.device == "cuda" else RESULT)
    if out:
        single = {
            f"{case.algorithm}, {format_case_name(case)}": {side: vars(times) for side, times in sides.items()}
            for case, sides in results
        }
        result_files.write_result(out, {"page": lines}, single)


if __name__ == "__main__":
    main()
