"""Fault injection: `python -m benchmarks.faults [CAMPAIGN ...] [--sample N] [--seed S]` disturbs runs and checks what
they leave.

Campaigns: `kills` (kill -9 before the n-th change of the file system, for every n of a first run, a re-run and a
restored one), `errors` (that change fails instead: disk full, input/output error, no permission), `signals` (a signal
at a random moment to a random process of the real command), `servers` (the same to Prefect's server), `flows` (the same
with both real flows at preset tiny's size), `together` (a run beside another run, plain `dvc repro` or `dvc gc`),
`inputs` (each parameter with values of the wrong type, range and shape), `strangers` (rewards whose processes fork, lie
and end, and regular expressions that match for ever), `edges` (each parameter with at least 20 values at its edges,
which DVC's reader then reads) and `yaml` (deep, aliased and merged YAML). After each fault a plain run must succeed
with the right outs and complete lineage, and leave nothing running or reserved. `--sample` limits the trials of each
campaign, drawn by the seed. `--keep` writes the outcome to benchmarks/results/faults.json, which benchmarks/faults.md
shows.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import fault_commands, fault_edges, fault_flows, fault_inputs, fault_strangers, result_files
from benchmarks.fault_runs import ERRORS, SITUATIONS, Toy, run_in_child_process

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks/results/faults.json"
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")
PAIRS = ("run", "repro", "gc")
MANY_SIGNALS = 300
MANY_PAIRS = 30
LATEST = 15.0  # seconds after the start of a flow; some stages of preset tiny end in that time


@dataclass
class Outcome:
    """The number of a campaign's trials, and its failures: how to repeat each one, and what was wrong."""

    trials: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, name: str, faults: Sequence[str]) -> None:
        """Count a trial."""
        self.trials += 1
        if faults:
            self.failures.append(f"{name}: {'; '.join(faults)}")
            print(f"FAILED {self.failures[-1]}", flush=True)


def sample_trials(trials: Sequence[Any], sample: int | None, rng: random.Random) -> list[Any]:
    """All trials, or a random sample of them, in order."""
    if sample is None or sample >= len(trials):
        return [*trials]
    return [trials[index] for index in sorted(rng.sample(range(len(trials)), sample))]


def run_kill_trials(scratch: Path, sample: int | None, rng: random.Random) -> Iterator[tuple[str, list[str]]]:
    """Stopped dead before every change of the file system."""
    for situation in SITUATIONS:
        toy = Toy.prepared(scratch / situation, situation)
        for n in sample_trials(range(1, toy.changes() + 1), sample and -(-sample // len(SITUATIONS)), rng):
            yield f"{situation}, kill at change {n}", toy.run_trial(n, None)


def run_disk_error_trials(scratch: Path, sample: int | None, rng: random.Random) -> Iterator[tuple[str, list[str]]]:
    """The change fails once, as a full, broken or closed disk makes it fail."""
    for situation in SITUATIONS:
        toy = Toy.prepared(scratch / situation, situation)
        for n in sample_trials(range(1, toy.changes() + 1), sample and -(-sample // len(SITUATIONS)), rng):
            code = rng.choice([*ERRORS])
            yield f"{situation}, {code} at change {n}", toy.run_trial(n, code)


def run_signal_trials(scratch: Path, sample: int | None, rng: random.Random) -> Iterator[tuple[str, list[str]]]:
    """At a random moment, to a random process of `posttrain run`."""
    command = fault_commands.Command.prepared(scratch / "command")
    for number in range(sample or MANY_SIGNALS):
        kind = rng.choice(SIGNALS)
        moment = rng.random()
        which = rng.random()
        yield (
            f"{kind} at {moment:.3f} to process {which:.3f}, trial {number}",
            command.run_with_signal(kind, moment, which),
        )


def run_server_signal_trials(scratch: Path, sample: int | None, rng: random.Random) -> Iterator[tuple[str, list[str]]]:
    """At a random moment, to Prefect's server or the process that keeps it."""
    command = fault_commands.Command.prepared(scratch / "command")
    for number in range(sample or MANY_SIGNALS):
        kind = rng.choice(SIGNALS)
        moment = rng.random()
        which = rng.random()
        faults = command.run_with_signal(kind, moment, which, at_server=True)
        yield f"{kind} at {moment:.3f} to process {which:.3f} of the server, trial {number}", faults


def run_flow_signal_trials(scratch: Path, sample: int | None, rng: random.Random) -> Iterator[tuple[str, list[str]]]:
    """At a random moment, to a random process of both real flows at preset tiny's size, again and again until they
    end.
    """
    real = fault_flows.Flows.prepared(scratch)
    flow, *others = fault_flows.FLOWS
    trials = sample or MANY_SIGNALS
    for number in range(trials):
        kind = rng.choice(SIGNALS)
        moment = rng.uniform(0, LATEST)
        which = rng.random()
        over, faults = real.run_with_signal(flow, kind, moment, which, last=number == trials - 1)
        yield f"{flow}, {kind} after {moment:.2f} s to process {which:.3f}, trial {number}", faults
        if over:
            flow, *others = [*others, flow]


def run_concurrent_command_trials(
    scratch: Path, sample: int | None, rng: random.Random
) -> Iterator[tuple[str, list[str]]]:
    """A run beside another, beside plain `dvc repro`, and beside `dvc gc`."""
    command = fault_commands.Command.prepared(scratch / "command")
    for number in range(sample or MANY_PAIRS):
        other = PAIRS[number % len(PAIRS)]
        later = rng.uniform(0, 1)
        yield f"run and {other}, {later:.3f} later, trial {number}", command.beside(other, later)


def run_invalid_input_trials(scratch: Path, sample: int | None, rng: random.Random) -> Iterator[tuple[str, list[str]]]:
    """Each parameter with values that it cannot have: one line, nothing written."""
    scratch.mkdir()
    for key, value in sample_trials(list(fault_inputs.iterate_invalid_values()), sample, rng):
        yield f"{key} = {value!r}"[:200], fault_inputs.find_refusal_faults(scratch, key, value)


def run_stranger_trials(scratch: Path, sample: int | None, rng: random.Random) -> Iterator[tuple[str, list[str]]]:
    """Rewards that fork, lie, end or are loud, and expressions that match for ever: each call has its own replies, or
    one line says why not.
    """
    for number, (kind, moment, text) in enumerate(
        sample_trials(list(fault_strangers.iterate_stranger_trials()), sample, rng)
    ):
        (folder := scratch / str(number)).mkdir(parents=True)
        yield f"{kind} {moment} {text!r}"[:200], fault_strangers.find_stranger_faults(folder, kind, moment, text)


def run_edge_value_trials(scratch: Path, sample: int | None, rng: random.Random) -> Iterator[tuple[str, list[str]]]:
    """Each parameter with values at its edges: refused in one line, or read by DVC as the same."""
    for key, text in sample_trials(
        [trial for name in fault_edges.SECTIONS for trial in fault_edges.iterate_edge_values(name)], sample, rng
    ):
        yield f"{key} = {text}"[:200], fault_edges.try_edge_value(key, text)[1]


def run_hostile_yaml_trials(scratch: Path, sample: int | None, rng: random.Random) -> Iterator[tuple[str, list[str]]]:
    """Deep, aliased and merged YAML in params.yaml, in a preset and after --set: one line, within seconds."""
    scratch.mkdir()
    for text in sample_trials(fault_inputs.build_hostile_yaml_texts(), sample, rng):
        status, faults = run_in_child_process(partial(fault_inputs.find_slow_yaml_responses, scratch, text))
        yield f"{len(text)} letters: {text[:60]!r}", [f"ended by signal {-status}"] if status < 0 else faults


CAMPAIGNS: Mapping[str, Callable[[Path, int | None, random.Random], Iterator[tuple[str, list[str]]]]] = {
    "kills": run_kill_trials,
    "errors": run_disk_error_trials,
    "signals": run_signal_trials,
    "servers": run_server_signal_trials,
    "flows": run_flow_signal_trials,
    "together": run_concurrent_command_trials,
    "inputs": run_invalid_input_trials,
    "strangers": run_stranger_trials,
    "edges": run_edge_value_trials,
    "yaml": run_hostile_yaml_trials,
}


def run_campaigns(names: Sequence[str], sample: int | None, seed: int) -> dict[str, Outcome]:
    """Make the campaigns' trials; failures are printed at once."""
    outcomes = {}
    for name in names:
        outcomes[name] = outcome = Outcome()
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as scratch:
            for trial, faults in CAMPAIGNS[name](Path(scratch) / name, sample, random.Random(seed)):
                outcome.add(trial, faults)
        outcome.seconds = time.monotonic() - began
        print(f"{name}: {outcome.trials} trials, {len(outcome.failures)} failures, {outcome.seconds:.0f} s", flush=True)
    return outcomes


def render(result: Mapping[str, Any]) -> str:
    """benchmarks/faults.md."""
    lines = [
        "# Faults",
        "",
        "Made by `python -m benchmarks.faults`: what stops, starves or misleads a run, and what is left "
        "afterwards. A trial fails "
        "unless a plain run then comes to its end with the right outs, each with a complete lineage, and nothing "
        "is left running, "
        "reserved or put aside; of bad parameters, unless one line says what was expected and nothing was written.",
        "",
        result["conditions"],
        "",
        "| campaign | trials | of all | failures | minutes | seed |",
        "|---|---|---|---|---|---|",
    ]
    for name, one in result["campaigns"].items():
        about = " ".join((CAMPAIGNS[name].__doc__ or name).split()).rstrip(".")
        cells = [
            one["trials"],
            "a sample" if one["sample"] else "all",
            len(one["failures"]),
            f"{one['seconds'] / 60:.1f}",
        ]
        lines.append(f"| {name}: {about} | {' | '.join(map(str, cells))} | {one['seed']} |")
    failures = [f"- {name}: {text}" for name, one in result["campaigns"].items() for text in one["failures"]]
    return "\n".join([*lines, *(["", "Failures:", "", *failures] if failures else []), "", *result["untried"]]) + "\n"


UNTRIED = [
    "Not tried: faults in the middle of SQLite's own writes (it has its own tests), power cuts that lose what was "
    "written and not "
    "synced, network file systems, and more than two runs at once."
]


def main() -> None:
    """Run the campaigns of the command line, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("campaigns", nargs="*", metavar="CAMPAIGN", help=", ".join(CAMPAIGNS))
    parser.add_argument("--sample", type=int, help="trials of each campaign; all without it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="write what came out to benchmarks/results/faults.json")
    given = parser.parse_args()
    failed = False
    for name in given.campaigns or [*CAMPAIGNS]:
        outcome = run_campaigns([name], given.sample, given.seed)[name]
        failed |= bool(outcome.failures)
        if given.keep:
            save_campaign_outcome(name, {**vars(outcome), "sample": given.sample, "seed": given.seed})
    sys.exit(failed)


def save_campaign_outcome(name: str, outcome: Mapping[str, Any]) -> None:
    """Add a campaign's outcome to the result file."""
    before = result_files.load_result(RESULT, {"campaigns": {}, "conditions": ""})
    known = {**before["campaigns"], name: outcome}
    campaigns = {name: known[name] for name in CAMPAIGNS if name in known}
    result = {"conditions": before["conditions"], "campaigns": campaigns, "untried": UNTRIED}
    result_files.write_result(RESULT, result, adds=True)


if __name__ == "__main__":
    main()
