"""The time to judge long and hostile answers: `python -m benchmarks.rubric` writes benchmarks/results/rubric.json.

It measures the processor time of the rubric and of the verifier's plain numbers, beside math-verify on the same text as
the verifier runs it. Then it searches for slow texts: repeated short strings of what the patterns match are timed at
two lengths, and those whose time grows most are listed.
"""

import itertools
import math
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks import result_files
from benchmarks.engine import describe_machine
from benchmarks.rubric_zoo import ANSWER, HOSTILE, NATURAL, QUESTION, SOLUTION
from tasks.language.rewards.rubric import score_response
from tasks.language.rewards.verifier import (
    VerifierWorker,
    extract_answer_latex,
    format_boxed_answer,
    judge_number_answer,
)

RESULT = Path(__file__).parent / "results/rubric.json"
LENGTHS = (6_250, 25_000, 100_000)
LIMIT = 3.0  # seconds of processor time for math-verify, as in the verifier
ALPHABET = (*"17.,%$()-+x=< >#\n{}s!\u0663/", "\\boxed{", "####", "<<", ">>", " plus ", " is ", "pens")
SEARCHED = (1_000, 4_000, 16_000)  # characters; only the steepest are timed at the last length
TRIPLES = 1_500  # of three parts, with another before and after, drawn at random


def judge_answer(text: str) -> None:
    """Judge an answer as rewards and metrics do."""
    score_response(QUESTION, SOLUTION, ANSWER, text, True)
    judge_number_answer(ANSWER, text)


def measure_judging_seconds(text: str, times: int) -> float:
    """Processor time to judge an answer, the least of several measurements."""
    found = []
    for _ in range(times):
        began = time.process_time()
        judge_answer(text)
        found.append(time.process_time() - began)
    return min(found)


def compute_growth_exponent(costs: list[float], lengths: tuple[int, ...]) -> float:
    """The exponent by which the cost grows between the last two lengths: 1 is linear, 2 quadratic."""
    return math.log(costs[-1] / costs[-2]) / math.log(lengths[-1] / lengths[-2])


class Peer:
    """math-verify in a process of the verifier; a new process replaces one that the limit ended."""

    def __init__(self) -> None:
        self.worker: VerifierWorker | None = None

    def seconds(self, text: str) -> float | None:
        """Processor time for the text; None if the limit ended the process."""
        if self.worker is None:
            self.worker = VerifierWorker(LIMIT)
            self.worker.judge(format_boxed_answer(ANSWER), ANSWER)  # loads what the first question needs
        process = psutil.Process(self.worker.process.pid)
        before = sum(process.cpu_times()[:2])
        self.worker.judge(format_boxed_answer(ANSWER), extract_answer_latex(text))
        if self.worker.alive():
            return sum(process.cpu_times()[:2]) - before
        self.close()
        return None

    def close(self) -> None:
        """End the process."""
        if self.worker is not None:
            self.worker.close()
        self.worker = None


def measure_answer_kind(make: Callable[[int], str], peer: Peer) -> dict[str, Any]:
    """A line of the table."""
    costs = [measure_judging_seconds(make(length), 3) for length in LENGTHS]
    return {
        "seconds": costs,
        "exponent": compute_growth_exponent(costs, LENGTHS),
        "math_verify": peer.seconds(make(LENGTHS[-1])),
    }


def list_search_candidates() -> list[tuple[str, str, str]]:
    """The candidates of the search: a prefix, a repeated part, a suffix."""
    short = [*((a,) for a in ALPHABET), *itertools.product(ALPHABET, repeat=2)]
    chosen = random.Random(0)
    long = [chosen.choices(ALPHABET, k=5) for _ in range(TRIPLES)]
    return [("", "".join(unit), "") for unit in short] + [(a, "".join(unit), b) for a, *unit, b in long]


def search_slow_texts() -> dict[str, Any]:
    """The number of texts tried, and the steepest, timed again at a greater length."""
    found = []
    for before, unit, after in list_search_candidates():
        costs = [
            measure_judging_seconds(before + (unit * n)[: n - len(before + after)] + after, 1) for n in SEARCHED[:2]
        ]
        found.append((compute_growth_exponent(costs, SEARCHED[:2]), before, unit, after))
    steepest = []
    for _, before, unit, after in sorted(found, reverse=True)[:20]:
        costs = [
            measure_judging_seconds(before + (unit * n)[: n - len(before + after)] + after, 3) for n in SEARCHED[1:]
        ]
        steepest.append({"text": f"{before}|{unit}|{after}", "exponent": compute_growth_exponent(costs, SEARCHED[1:])})
    return {"tried": len(found), "steepest": sorted(steepest, key=lambda one: -one["exponent"])[:5]}


def render(result: dict[str, Any]) -> str:
    """benchmarks/rubric.md."""
    lines = [
        "# Judging long and hostile answers",
        "",
        f"Made by `python -m benchmarks.rubric` on {result['machine']}. Load of the machine when it began: "
        f"{result['load']:.1f}.",
        "",
        "Seconds of processor time for the rubric and the verifier's plain numbers together, the best of 3, by the "
        "answer's length in "
        "characters; the exponent of growth from the second length to the third (1 is linear, 2 quadratic); beside "
        "them math-verify on the "
        f"longest, as the verifier runs it, in a process that may take {result['limit']:.0f} s.",
        "",
        f"| answer | {' | '.join(f'{length:,}' for length in result['lengths'])} | exponent | math-verify |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in result["kinds"].items():
        theirs = "ended" if row["math_verify"] is None else f"{row['math_verify']:.2f}"
        cells = [*(f"{cost:.4f}" for cost in row["seconds"]), f"{row['exponent']:.2f}", theirs]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    found = result["search"]
    steepest = ", ".join(f"{one['exponent']:.2f} for {one['text']!r}" for one in found["steepest"])
    lines += [
        "",
        f"Searched: {found['tried']:,} texts that repeat one to three parts of what the patterns know, many with "
        "another before and after "
        f"(between bars below). The steepest of them, from {SEARCHED[1]:,} to {SEARCHED[2]:,} characters: {steepest}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, search and write."""
    result: dict[str, Any] = {
        "machine": describe_machine("math-verify"),
        "load": os.getloadavg()[0],
        "lengths": LENGTHS,
    }
    result |= {"limit": LIMIT, "kinds": {}}
    peer = Peer()
    for name, make in (NATURAL | HOSTILE).items():
        result["kinds"][name] = measure_answer_kind(make, peer)
        print(name, result["kinds"][name], flush=True)
    peer.close()
    result["search"] = search_slow_texts()
    result_files.write_result(RESULT, result)


if __name__ == "__main__":
    main()
