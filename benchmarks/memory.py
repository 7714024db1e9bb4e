"""Peak memory of a DPO and a GRPO step with a vocabulary of 151,936, against TRL: `python -m benchmarks.memory` writes
benchmarks/results/memory.json.

The sides are those of benchmarks/rl.py; beside them stands our own with the logits of all positions in memory, as it
was before they were computed in chunks. Each run is a process of its own, one after another. First the losses and
gradients of both must be equal on one batch. `--quick` only shows that everything runs; its numbers mean nothing.
"""

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks import result_files
from benchmarks.engine import describe_machine
from benchmarks.rl import QUIET, Gate, check_agreement, receive_message
from benchmarks.rl_cases import ALGORITHMS, OURS, QUICK, THEIRS, THREADS, Case, Size, build_llama_shape
from benchmarks.rl_report import count_million_parameters, format_median_and_range

RESULT = Path(__file__).parent / "results/memory.json"
WHOLE = "posttrain, all logits at once"
SIDES = (OURS, WHOLE, THEIRS)
ROUNDS = 3
PROMPT = 64
STEPS = 2  # the second begins with the optimizer's state in memory, and is the one that is timed
VOCABULARY = 151_936  # Qwen's
SIZE = Size(
    "llama",
    build_llama_shape(128, 4, 4, 344, VOCABULARY),
    prompts=2,
    samples=8,
    pairs=8,
    response=32,
    stop=1 / 36,
    micro_batch=16,
)
Run = tuple[float, float, float]  # MB at the peak, MB before the first step, the processor's seconds of a step
Found = dict[str, list[Run]]  # by side


class Meter(Gate):
    """Counts the processor's time, which other work on the machine changes little."""

    def clock(self) -> float:
        """The seconds that all threads of this process have worked."""
        return time.process_time()


def run_memory_side(side: str, case: Case, pipe: Connection) -> None:
    """One run, in a process of its own."""
    os.environ |= QUIET
    import torch

    from benchmarks import rl_sides
    from tasks.algorithms.language import lm_head

    torch.set_num_threads(case.threads)
    if side == WHOLE:
        lm_head.LARGE = sys.maxsize
    rl_sides.SIDES[THEIRS if side == THEIRS else OURS](case, Meter(pipe, case.device))


def measure_side_memory(side: str, case: Case) -> Run:
    """One process: its memory, and the time of its last step."""
    spawn = multiprocessing.get_context("spawn")
    pipe, far = spawn.Pipe()
    child = spawn.Process(target=run_memory_side, args=(side, case, far), daemon=True)
    child.start()
    far.close()
    try:
        loaded = receive_message(pipe, side)
        seconds = 0.0
        peak = 0.0
        for _ in range(case.steps):
            pipe.send("go")
            seconds, _, _, peak = receive_message(pipe, side)
    finally:
        pipe.close()
        child.join(30)
        child.kill()
    return peak, loaded, seconds


def render_sides_table(title: str, found: dict[str, Found], value: int, digits: int) -> list[str]:
    """One number of every case and side as lines; `value` is its place in what `run` returns."""
    lines = [f"## {title}", "", f"| | {' | '.join(SIDES)} |", f"|---|{'---|' * len(SIDES)}"]
    for name, sides in found.items():
        cells = (format_median_and_range([row[value] for row in sides[side]], digits) for side in SIDES)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def format_median_comparison(found: dict[str, Found]) -> list[str]:
    """What the medians say, whichever way they fall."""

    def median(name: str, side: str, value: int) -> float:
        return statistics.median(row[value] for row in found[name][side])

    lines = []
    for name in found:
        parts = []
        for side in (WHOLE, THEIRS):
            memory, seconds = (median(name, OURS, value) / median(name, side, value) for value in (0, 2))
            parts.append(f"{memory:.2f} times the memory and {seconds:.2f} times the processor's time of {side}")
        lines.append(f"- {name}: ours takes {', and '.join(parts)}.")
    return ["## Ours against the others, by the medians", "", *lines]


def render_memory_introduction(size: Size, prompt: int, rounds: int, load: float, seconds: float) -> list[str]:
    """What was measured, on which machine, and how."""
    processes = "one of each" if rounds == 1 else f"medians of {rounds} processes (range in brackets)"
    logits = size.pairs * 2 * size.response * size.shape["vocab_size"] * 4 / 1e6
    return [
        f"# Memory with a vocabulary of {size.shape['vocab_size']:,}, against TRL",
        "",
        f"Made by `python -m benchmarks.memory` in {seconds / 60:.0f} minutes on "
        f"{describe_machine('torch', 'transformers', 'trl')}; cpu, {THREADS} "
        f"threads. Load of the machine when it began: {load:.1f}.",
        "",
        f"A llama of {count_million_parameters(size):.1f} million random weights in fp32, "
        f"{size.shape['num_hidden_layers']} "
        "layers, embeddings tied, AdamW. "
        f"A DPO step: {size.pairs} pairs, log-probabilities of the reference known beforehand. A GRPO step: "
        f"{size.prompts} prompts, "
        f"{size.samples} responses to each, one update. Prompts of {prompt} tokens, responses of {size.response}; "
        "all of them in one pass; "
        f"the logits of DPO's response tokens are {logits:.0f} MB. "
        "Weights, gradients and the two moments of AdamW are as large on all sides.",
        "",
        "TRL runs by its trainers, as in [rl.md](rl.md); it computes log-probabilities in tiles of the vocabulary, "
        "without all logits, too. "
        "Before anything was measured, loss and the gradient of every weight were equal on both sides for one "
        "batch of each algorithm.",
        "",
        f"Peak memory is resident, of a process that does nothing else; {processes}. Seconds are "
        "those of the processor for the second step, of all threads together.",
        "",
    ]


def main() -> None:
    """Check, measure and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="toy sizes and one run, to see that it runs")
    parser.add_argument("--out", type=Path, help="where the tables go; with --quick nowhere by default")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="processes of each side and algorithm")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    began = time.perf_counter()
    size, prompt, rounds = (QUICK, 8, 1) if given.quick else (SIZE, PROMPT, given.rounds)
    check_agreement(size, prompt)
    print("Losses and gradients of both sides are equal.", flush=True)
    found: dict[str, Found] = {}
    for algorithm in ALGORITHMS:
        case = Case(algorithm, prompt, False, size, "cpu", THREADS, STEPS)
        found[f"{algorithm.upper()}"] = sides = {side: [] for side in SIDES}
        for number in range(rounds):
            for side in SIDES[:: 1 if number % 2 == 0 else -1]:
                sides[side].append(measure_side_memory(side, case))
                peak, loaded, seconds = sides[side][-1]
                print(f"{algorithm}, {side}: {peak:.0f} MB, {loaded:.0f} before, {seconds:.1f} s", flush=True)
    lines = render_memory_introduction(size, prompt, rounds, load, time.perf_counter() - began)
    lines += render_sides_table("Peak memory, MB", found, 0, 0)
    lines += render_sides_table("Before the first step, MB", found, 1, 0)
    lines += render_sides_table("A step, processor seconds", found, 2, 1)
    lines += format_median_comparison(found)
    print("\n".join(lines))
    out = given.out or (None if given.quick else RESULT)
    if out:
        result_files.write_result(out, {"page": lines}, found)


if __name__ == "__main__":
    main()
