"""Faults of stages on workers: `python -m benchmarks.worker_faults [--trials N] [--seed S] [--only FAULT] [--keep]`.

A Prefect server, two workers and a coordinator, all real processes, run a stage of six seconds; something is killed,
stopped, taken away or torn at a random moment. With the transport `shared` the workers are in the coordinator's
checkout, with `clone` each has its own, and a folder is DVC's remote. After each trial the outs must be an undisturbed
run's, no process, lock, lease, note or scratch copy may be left, the next `posttrain run` must find nothing to do, and
`posttrain audit --all` no fault. `--keep` adds the trials to benchmarks/results/worker_faults.json, which
benchmarks/worker_faults.md shows.
"""

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import result_files
from benchmarks.worker_fault_site import LIMIT, ROOT, Site, find_leftovers
from benchmarks.worker_fault_trials import FAULTS, LARGE, Trial, damage_remote_input

RESULT = ROOT / "benchmarks/results/worker_faults.json"
REPOSITORIES = {"shared": {"k1": "one", "k2": "one"}, "clone": {"k1": "two", "k2": "three"}}


class Campaign:
    """Trials one after the other on one site; the workers live on from trial to trial, as far as the faults let
    them.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.site = Site(folder)
        self.seed = seed
        self.transport = ""
        self.number = 0
        self.site.make()

    def run_trial(self, fault: str, transport: str) -> dict[str, Any]:
        """One trial; what came out, as it stands in the result file."""
        self.number += 1
        disturb, _ = FAULTS[fault]
        site = self.site
        rng = random.Random(f"{self.seed} {self.number} {fault} {transport}")
        self._ensure_workers(transport)
        stages = ("left", "right") if fault == "two stages" else ("left",)
        value = self.seed * 1000 + self.number
        site.write_params(site.one, **{name: {"value": value, "more": LARGE.get(fault, 10)} for name in stages})
        if fault == "input torn":
            damage_remote_input(site, rng)
        if fault == "two coordinators":
            self._prepare_second_coordinator()
        before = len(site.notes())
        trial = Trial(site, transport, rng, site.run(*stages), before, stages=stages)
        began = time.monotonic()
        try:
            disturb(trial)
            if (status := trial.run.wait(LIMIT)) != 0:
                trial.faults.append(f"exit status {status}: {' '.join(site.said().split())[-600:]}")
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            trial.faults.append(f"{error}; it said {site.said()[-300:]!r}")
        found = [*trial.faults, *find_leftovers(site, stages), *self._find_faults_afterwards(stages)]
        commands = len({note.pid for note in trial.notes()})
        outcome = {
            "fault": fault,
            "transport": transport,
            "noticed": trial.noticed,
            "commands": commands,
            "seconds": time.monotonic() - began,
            "faults": found,
        }
        print(f"{self.number} {fault}, {transport}: {'; '.join(found) or 'well'} {outcome}", flush=True)
        return outcome

    def _ensure_workers(self, transport: str) -> None:
        """See to it that both workers of this transport live."""
        site = self.site
        if transport != self.transport:
            for worker in site.workers.values():
                worker.terminate()
            for worker in site.workers.values():
                worker.wait(60)
            site.workers = {}
            self.transport = transport
        for name, repository in REPOSITORIES[transport].items():
            if name not in site.workers or site.workers[name].poll() is not None:
                site.workers.pop(name, None)
                site.start_worker(f"{name}", repository)
        site.wait_for_workers()

    def _prepare_second_coordinator(self) -> None:
        """A second coordinator's clone, with parameters of its own."""
        site = self.site
        other = self.site.folder / "other"
        if not other.exists():
            site.call("git", "clone", "--quiet", str(site.one), str(other))
        sections = json.loads((site.one / "params.yaml").read_text())
        sections["left"]["value"] = -sections["left"]["value"]
        (other / "params.yaml").write_text(json.dumps(sections))

    def _find_faults_afterwards(self, stages: Sequence[str]) -> Iterator[str]:
        """What the next commands find wrong."""
        for words, good in ((["run", *stages], "nothing has changed"), (["audit", "--all"], "no faults")):
            done = subprocess.run(
                [sys.executable, "-m", "flows.cli", *words],
                cwd=self.site.one,
                env=self.site.environ,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode or good not in done.stdout:
                yield f"{words[0]} afterwards: {' '.join((done.stdout + done.stderr).split())[-400:]}"


def plan_trials(trials: int, seed: int, only: Sequence[str], transports: Sequence[str]) -> list[tuple[str, str]]:
    """Every fault with every transport, again and again, as many as are asked for; each time those of one transport
    stand together.
    """
    kinds = [(name, way) for name, (_, ways) in FAULTS.items() for way in ways if way in transports]
    kinds = [kind for kind in kinds if not only or kind[0] in only]
    rng = random.Random(seed)
    chosen = list[tuple[str, str]]()
    while len(chosen) < trials:
        rng.shuffle(kinds)
        last = chosen[-1][1] if chosen else "shared"
        chosen += sorted(kinds, key=lambda kind: kind[1] != last)
    return chosen[:trials]


def render(result: Mapping[str, Any]) -> str:
    """benchmarks/worker_faults.md."""
    lines = [
        "# Faults of stages on workers",
        "",
        *_render_introduction(result),
        "",
        *_render_fault_table(result["trials"]),
    ]
    failures = [
        f"- {one['fault']}, {one['transport']}: {'; '.join(one['faults'])}" for one in _select_failed_trials(result)
    ]
    return "\n".join([*lines, *(["", "Failures:", "", *failures] if failures else []), "", *result["notes"]]) + "\n"


def _select_failed_trials(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one for one in result["trials"] if one["faults"]]


def _render_introduction(result: Mapping[str, Any]) -> list[str]:
    trials = result["trials"]
    counted = f"{len(trials)} trials, {len(_select_failed_trials(result))} failures. {result['conditions']}"
    return [
        "Made by `python -m benchmarks.worker_faults`: a Prefect server, two workers and a coordinator, all real "
        "processes, run a stage of "
        "six seconds, and something is killed, stopped, taken away or torn at a random moment. With the transport "
        "`shared` the workers "
        "are in the coordinator's checkout, with `clone` each has its own, and a folder is DVC's remote. A trial "
        "fails unless the "
        "outs are an undisturbed run's, byte for byte and by their hash in dvc.lock, no two commands wrote them at "
        "once, no process, "
        "lock, lease, note or scratch copy is left, the next `posttrain run` finds nothing to do, and `posttrain "
        "audit --all` no fault.",
        "",
        counted,
        "",
        "*Noticed*: from the fault until the lost attempt stands as killed in MLflow. *Made again*: trials in "
        "which the stage's "
        "command ran a second time.",
    ]


def _render_fault_table(trials: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        "| fault | transport | trials | noticed after, median s | worst s | made again | outs equal | "
        "orphans | failures |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, (disturb, ways) in FAULTS.items():
        for way in ways:
            those = [one for one in trials if (one["fault"], one["transport"]) == (name, way)]
            if those:
                seconds = [one["noticed"] for one in those if one["noticed"] is not None]
                cells = [
                    way,
                    str(len(those)),
                    f"{statistics.median(seconds):.1f}" if seconds else "",
                    f"{max(seconds):.1f}" if seconds else "",
                    str(sum(one["commands"] > (2 if name.startswith("two") else 1) for one in those)),
                    str(sum(not any("undisturbed" in fault for fault in one["faults"]) for one in those)),
                    str(sum(fault.startswith("orphan") for one in those for fault in one["faults"])),
                    str(sum(bool(one["faults"]) for one in those)),
                ]
                about = " ".join((disturb.__doc__ or "").split())
                lines.append(f"| {about} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Make the trials of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", default=[], choices=[*FAULTS])
    parser.add_argument("--transport", action="append", default=[], choices=["shared", "clone"])
    parser.add_argument(
        "--keep", action="store_true", help="add what came out to benchmarks/results/worker_faults.json"
    )
    given = parser.parse_args()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background jobs would ignore it, and pass that on
    bad = False
    with tempfile.TemporaryDirectory(prefix="worker-faults-") as folder:
        campaign = Campaign(Path(folder), given.seed)
        try:
            for fault, transport in plan_trials(
                given.trials, given.seed, given.only, given.transport or ["shared", "clone"]
            ):
                outcome = campaign.run_trial(fault, transport)
                bad |= bool(outcome["faults"])
                if given.keep:
                    append_trial_result(outcome)
        finally:
            campaign.site.close()
    sys.exit(bad)


def append_trial_result(outcome: Mapping[str, Any]) -> None:
    """Add a trial to the result file."""
    before = result_files.load_result(RESULT, {"conditions": "", "notes": [], "trials": []})
    result = {**before, "trials": [*before["trials"], outcome]}
    result_files.write_result(RESULT, result, adds=True)


if __name__ == "__main__":
    main()
