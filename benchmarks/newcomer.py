"""A newcomer's clock: `python -m benchmarks.newcomer` times README's commands in a fresh clone, from `git clone` on.

It notes when the first stage starts, when the report is there, when the second result is there (after `posttrain run
--set dpo.beta=0.2`) and when `posttrain lineage grpo strict_greedy` has answered where a number comes from. `--cold`
gives pip and uv empty caches. `--until first` stops at the first stage and `--until report` at the report. The
processor and the load beside it are in benchmarks/results/newcomer.json, by the run's name (`--name`), and
benchmarks/newcomer.md is made of that file (benchmarks/claims.py).
"""

import argparse
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import result_files
from benchmarks.engine import describe_machine

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks/results/newcomer.json"
STARTED = re.compile(r"^\S+ +running\b")  # the line of a stage that starts
CHANGE = ("run", "--set", "dpo.beta=0.2")
QUESTION = ("lineage", "grpo", "strict_greedy")
STEPS = ("clone", "first stage", "report", "second result", "answer")
LONGEST_SILENCE = "longest silence before the first stage"


class Clock:
    """Seconds since it was made, by the name of what had happened."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.seconds: dict[str, float] = {}

    def note(self, name: str) -> None:
        """Something has happened just now."""
        self.seconds[name] = round(time.monotonic() - self.started, 1)
        print(f"{self.seconds[name]:8.1f} s  {name}", flush=True)


@contextmanager
def open_command_process(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """A command with a group of processes of its own, whose output can be read; SystemExit where it fails."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with process:
        yield process
    if process.returncode not in (0, -signal.SIGINT, 130):
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")


def measure_newcomer_seconds(
    source: Path, folder: Path, environment: Mapping[str, str], until: str
) -> dict[str, float]:
    """Clone `source` into `folder` and follow README there; seconds from the start to each step, and the longest
    silence.
    """
    clock = Clock()
    subprocess.run(["git", "clone", "--quiet", str(source), str(folder)], check=True)
    clock.note("clone")
    silence = 0.0
    heard = time.monotonic()
    with open_command_process(["make", "run"], folder, environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            silence = max(silence, time.monotonic() - heard)
            heard = time.monotonic()
            if STARTED.match(line):
                clock.note("first stage")
                break
        if until == "first":
            os.killpg(process.pid, signal.SIGINT)
        for _ in process.stdout:  # until it has ended
            pass
    if until == "first":
        return {**clock.seconds, LONGEST_SILENCE: round(silence, 1)}
    clock.note("report")
    if until != "report":
        posttrain = str(folder / ".venv/bin/posttrain")
        for step, arguments in (("second result", CHANGE), ("answer", QUESTION)):
            subprocess.run([posttrain, *arguments], cwd=folder, env=dict(environment), check=True, capture_output=True)
            clock.note(step)
    return {**clock.seconds, LONGEST_SILENCE: round(silence, 1)}


def render(results: Mapping[str, Mapping[str, Any]]) -> str:
    """benchmarks/newcomer.md."""
    lines = [
        "# From `git clone` to a result",
        "",
        "Made by `python -m benchmarks.newcomer`: seconds from the start of `git clone` to each "
        "step, in a fresh clone.",
        "",
        f"| run | {' | '.join(STEPS)} | {LONGEST_SILENCE} |",
        f"|{'---|' * (len(STEPS) + 2)}",
    ]
    for name, result in sorted(results.items()):
        cells = [
            f"{result['seconds'][step]:.0f}" if step in result["seconds"] else "" for step in (*STEPS, LONGEST_SILENCE)
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    for name, result in sorted(results.items()):
        load = ", ".join(f"{value:.1f}" for value in result["load"])
        lines += ["", f"{name}: {result['machine']}, commit {result['commit'][:7]}, load averages at the start {load}."]
    return "\n".join(lines) + "\n"


def until_first_stage(results: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """A sentence: how long after the start of `git clone` the first stage started in the run of this name, and where.

    The name begins with the state of the installers' caches, such as "cold caches".
    """
    caches = name.partition(",")[0]
    seconds = results[name]["seconds"]["first stage"]
    processor = results[name]["machine"].partition("),")[0]
    return (
        f"With {caches} of pip and uv the first stage started {seconds:.0f} s after the beginning of `git clone`, "
        f"on {processor}).\n"
    )


def main() -> None:
    """Measure one newcomer, and keep the result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.newcomer", description=__doc__)
    parser.add_argument("--name", default="warm", help="of the row in the table")
    parser.add_argument("--cold", action="store_true", help="pip and uv have empty caches")
    parser.add_argument("--until", choices=["first", "report", "answer"], default="answer")
    given = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as scratch:
        caches = {"PIP_CACHE_DIR": f"{scratch}/pip", "UV_CACHE_DIR": f"{scratch}/uv"} if given.cold else {}
        seconds = measure_newcomer_seconds(ROOT, Path(scratch, "posttrain"), {**os.environ, **caches}, given.until)
    results = result_files.load_result(RESULT, {})
    results[given.name] = {
        "machine": describe_machine("torch"),
        "commit": commit.stdout.strip(),
        "load": load,
        "seconds": seconds,
    }
    result_files.write_result(RESULT, results, adds=True)


if __name__ == "__main__":
    main()
