"""What a stage costs before it begins, warm and cold: `python -m benchmarks.warm_starts` writes
benchmarks/results/warm_starts.json.

Each stage's command is started with `--help`, which ends as soon as everything is imported: by the engine's two ways of
starting it, turn about. The server of warm starts has its modules already; how long it took for them, and its memory,
are a line of their own.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from benchmarks import result_files
from benchmarks.engine import describe_machine
from flows.engine.warm_stages import MODULES
from flows.machine.supervisor import Command
from flows.machine.warm_start import WarmStarts

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "benchmarks/results/warm_starts.json"
ROUNDS = 7
STAGES = ("language.problems", "language.sft", "language.grpo", "language.evaluate", "language.report", "offline.cql")
Times = dict[str, dict[str, list[float]]]


def build_stage_environment() -> dict[str, str]:
    """The environment of a stage."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, "OMP_WAIT_POLICY": "passive", "PYTHONUNBUFFERED": "1"}


def measure_start_seconds(stage: str, folder: Path, warm: WarmStarts | None) -> float:
    """The wall time of one start."""
    line = f"python -m tasks.{stage} --help"
    log = folder / "log"
    began = time.perf_counter()
    found = warm.start(line, ROOT, build_stage_environment(), log, []) if warm is not None else None
    command = Command([["sh", "-c", line]], ROOT, build_stage_environment(), log) if found is None else found
    status = command.wait(120)
    elapsed = time.perf_counter() - began
    command.stop()
    assert status == 0, log.read_text()
    assert (found is None) == (warm is None)
    return elapsed


def measure_cold_and_warm_starts(
    stages: Sequence[str], rounds: int, warm: WarmStarts, folder: Path
) -> tuple[dict[str, float], Times]:
    """By package of stages the seconds of the first start, which waits for the imports; then each stage's starts of
    both kinds.
    """
    first = {
        package: measure_start_seconds(
            next(stage for stage in stages if f"tasks.{stage}".startswith(package)), folder, warm
        )
        for package in sorted({f"tasks.{stage}".rpartition(".")[0] for stage in stages})
    }
    times: Times = {stage: {"cold": [], "warm": []} for stage in stages}
    for _ in range(rounds):
        for stage, found in times.items():
            found["cold"].append(measure_start_seconds(stage, folder, None))
            found["warm"].append(measure_start_seconds(stage, folder, warm))
    return first, times


def measure_server_memory() -> dict[str, tuple[float, float]]:
    """By package the server's resident memory, and its own share of it, in MB: pages that nobody else has."""
    found = {}
    for process in psutil.Process().children():
        for package, modules in MODULES.items():
            if process.cmdline()[-len(modules) :] == list(modules):
                held = process.memory_full_info()
                found[package] = (held.rss / 1e6, held.uss / 1e6)
    return found


def render_warm_starts_page(
    first: Mapping[str, float], times: Times, held: Mapping[str, tuple[float, float]], rounds: int, load: float
) -> str:
    """The tables as text."""
    lines = [
        "# Warm and cold starts of stages",
        "",
        f"Made by `python -m benchmarks.warm_starts` on {describe_machine('torch', 'transformers', 'pandas')}.",
        "Seconds of wall time from the start of a stage's command with `--help` to its end, under its supervisor; "
        f"medians of {rounds}, turn about. Load of the machine when it",
        f"began: {load:.1f}.",
        "",
        "| stage | cold | warm | times as fast | lowest to highest |",
        "|---|---|---|---|---|",
    ]
    for stage, found in times.items():
        cold, warm = (statistics.median(found[kind]) for kind in ("cold", "warm"))
        spread = "; ".join(f"{kind} {min(values):.2f} to {max(values):.2f}" for kind, values in found.items())
        lines.append(f"| {stage.rpartition('.')[2]} | {cold:.2f} | {warm:.2f} | {cold / warm:.1f} | {spread} |")
    lines += ["", "| server | first stage, s | resident, MB | its own, MB |", "|---|---|---|---|"]
    lines += [f"| {name} | {first[name]:.1f} | {rss:.0f} | {uss:.0f} |" for name, (rss, uss) in held.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.warm_starts", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--stages", nargs="+", default=STAGES)
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    load = os.getloadavg()[0]
    warm = WarmStarts(MODULES)
    try:
        with tempfile.TemporaryDirectory() as folder:
            first, times = measure_cold_and_warm_starts(given.stages, given.rounds, warm, Path(folder))
            lines = render_warm_starts_page(first, times, measure_server_memory(), given.rounds, load).splitlines()
            result_files.write_result(given.out, {"page": lines}, times)
    finally:
        warm.close()
    print(*lines, sep="\n")


if __name__ == "__main__":
    main()
